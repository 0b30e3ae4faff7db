// Package kbroker starts the installed command kbroker for a Go test: a real broker, or a cluster, with the verbs of its
// control. Names that franz-go's kfake has are kfake's: a test of kfake's needs one changed import,
//
//	import kfake "kbroker/compat_tests/go_control"
//
// Not there: ListenFn and VirtualNetwork (brokers are processes), BlackholeProduce and SyntheticFetch (records are kept),
// MaxVersions, ClusterID, SetFollowers, and Fault, whose place is Inject's.
package kbroker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a cluster that runs until Close, or until the test's process ends.
type Cluster struct {
	settings settings
	command  *exec.Cmd
	stdin    io.Closer
	read     sync.WaitGroup
	url      string
	addrs    []string
	dir      string
	isOneOff bool
	http     *http.Client
	admin    *kgo.Client
	controls controls
	close    sync.Once
}

// NewCluster starts a cluster, and returns once clients are served.
func NewCluster(opts ...Opt) (*Cluster, error) {
	chosen, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{settings: chosen, dir: chosen.dataDir, http: &http.Client{Transport: &http.Transport{}}}
	c.controls.begin(c)
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kbroker-"); err != nil {
			return nil, err
		}
		c.isOneOff = true
	}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// MustCluster is NewCluster, which panics on an error.
func MustCluster(opts ...Opt) *Cluster {
	c, err := NewCluster(opts...)
	if err != nil {
		panic(err)
	}
	return c
}

func (c *Cluster) start() error {
	words, err := c.settings.words(c.dir)
	if err != nil {
		return err
	}
	c.command = exec.Command(words[0], words[1:]...)
	stdin, err := c.command.StdinPipe() // it ends with this process, however that ends
	if err != nil {
		return err
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return err
	}
	told := &log{logger: c.settings.logger}
	c.command.Stderr = told
	if err := c.command.Start(); err != nil {
		return err
	}
	c.stdin = stdin
	lines := bufio.NewScanner(stdout)
	ready := ""
	for ready == "" && lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), ": ")
		switch what {
		case "kbroker control":
			c.url = rest
		case "kbroker ready":
			ready = rest
		}
	}
	if ready == "" {
		return fmt.Errorf("kbroker has ended instead of serving (%v):\n%s", c.command.Wait(), told.text())
	}
	c.read.Go(func() { io.Copy(io.Discard, stdout) })
	// One broker tells the address of each listener, for clients first; a cluster tells its brokers'.
	c.addrs = strings.FieldsFunc(ready, func(r rune) bool { return r == ',' || r == ' ' })
	own := c.addrs
	if c.settings.isSecure() {
		own, c.addrs = c.addrs[1:], c.addrs[:1]
	}
	if c.admin, err = kgo.NewClient(kgo.SeedBrokers(own...), kgo.ClientID("kbroker.testing")); err != nil {
		return err
	}
	return c.seed()
}

func (c *Cluster) seed() error {
	topics := map[string]map[string]any{}
	for _, each := range c.settings.seeds {
		for _, topic := range each.topics {
			topics[topic] = map[string]any{}
			if each.partitions > 0 {
				topics[topic]["partitions"] = each.partitions
			}
		}
	}
	for topic, arguments := range topics {
		err := c.Do("POST", "/topics/"+topic+"/create", arguments, nil)
		if problem, is := err.(*Problem); is && problem.Code == "TOPIC_ALREADY_EXISTS" && !c.isOneOff {
			continue // of an earlier life
		} else if err != nil {
			return err
		}
	}
	return c.seedSecurity()
}

// ListenAddrs returns the addresses of the brokers that run.
func (c *Cluster) ListenAddrs() []string {
	if c.settings.brokers == 1 {
		return slices.Clone(c.addrs)
	}
	addrs := []string{}
	for _, each := range c.nodes() {
		if each.State == "running" {
			addrs = append(addrs, each.Address)
		}
	}
	return addrs
}

// ControlURL returns where the control is; /openapi.json there tells all verbs.
func (c *Cluster) ControlURL() string { return c.url }

// Close stops the cluster, and removes its data unless DataDir has named their place.
func (c *Cluster) Close() {
	c.close.Do(func() {
		c.controls.end()
		if c.admin != nil {
			c.admin.Close()
		}
		if c.stdin != nil {
			c.command.Process.Signal(syscall.SIGTERM)
			c.read.Wait()
			c.command.Wait()
			c.stdin.Close()
		}
		c.controls.pollers.Wait()
		c.http.CloseIdleConnections()
		if c.isOneOff {
			os.RemoveAll(c.dir)
		}
	})
}

// Problem is an answer that is not 200.
type Problem struct {
	Status int             `json:"-"`
	Text   string          `json:"error"`
	Code   string          `json:"code"`
	Seen   json.RawMessage `json:"seen"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%s (%d)", p.Text, p.Status) }

// Do asks the control: a verb's arguments, none for nil, and its answer, which is dropped for nil.
func (c *Cluster) Do(method, path string, arguments, answer any) error {
	var body io.Reader
	if arguments != nil {
		text, err := json.Marshal(arguments)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, c.url+path, body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		problem := &Problem{Status: response.StatusCode}
		if err := json.NewDecoder(response.Body).Decode(problem); err != nil {
			return err
		}
		return problem
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// Inject has requests go wrong: kind is delay, hold, error, drop or stale-latest. The number is that of Undo.
func (c *Cluster) Inject(kind string, arguments map[string]any) (number int, err error) {
	var made struct{ Number int }
	err = c.Do("POST", "/faults/"+kind, arguments, &made)
	return made.Number, err
}

// Undo ends a fault, and returns the number of requests that it has acted on.
func (c *Cluster) Undo(number int) (hits int, err error) {
	var seen struct{ Hits int }
	err = c.Do("DELETE", "/faults/"+strconv.Itoa(number), nil, &seen)
	return seen.Hits, err
}

// MoveTopicPartition has a broker lead a partition.
func (c *Cluster) MoveTopicPartition(topic string, partition, nodeID int32) error {
	return c.Do("POST", "/topics/"+topic+"/move-leader", map[string]any{"partition": partition, "to": nodeID}, nil)
}

type node struct {
	Node           int32
	State, Address string
}

func (c *Cluster) nodes() []node {
	var seen struct{ Nodes []node }
	if err := c.Do("GET", "/nodes", nil, &seen); err != nil {
		return nil
	}
	return seen.Nodes
}

// AddNode adds a broker, and returns its id and port once it serves. The id is the next, or -1 for that; port 0 is a free
// one, and there is no other choice. A cluster that is to grow begins with two brokers.
func (c *Cluster) AddNode(nodeID int32, port int) (int32, int, error) {
	next := int32(0)
	for _, each := range c.nodes() {
		next = max(next, each.Node+1)
	}
	if nodeID >= 0 && nodeID != next || port > 0 {
		return 0, 0, fmt.Errorf("the next node is %d, at a free port", next)
	}
	var added node
	if err := c.Do("POST", "/nodes", nil, &added); err != nil {
		return 0, 0, err
	}
	_, text, _ := net.SplitHostPort(added.Address)
	port, err := strconv.Atoi(text)
	return added.Node, port, err
}

// RemoveNode stops a broker. Its replicas stay its own: partitions without another are not served until it starts again.
func (c *Cluster) RemoveNode(nodeID int32) error { return c.Node(nodeID, "stop") }

// Node does to a broker what an action says: stop, start, kill, pause or resume.
func (c *Cluster) Node(nodeID int32, action string) error {
	return c.Do("POST", fmt.Sprintf("/nodes/%d/%s", nodeID, action), nil, nil)
}

// Wait waits: what is group, committed, end, drained or requests. The error is a *Problem of status 504 out of time.
func (c *Cluster) Wait(what string, arguments map[string]any, answer any) error {
	return c.Do("POST", "/wait/"+what, arguments, answer)
}

// Advance moves the brokers' clocks ahead: retention, sessions and time-outs of a week in no time.
func (c *Cluster) Advance(by time.Duration) error {
	return c.Do("POST", "/clock/advance", map[string]any{"seconds": by.Seconds()}, nil)
}

// Reset has everything be as at the beginning, but for the topics of SeedTopics. Functions of Control are dropped.
func (c *Cluster) Reset() error {
	c.controls.clear()
	return c.Do("POST", "/reset", nil, nil)
}
