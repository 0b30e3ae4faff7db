// Package kbroker starts the installed command kbroker for a Go test: a real broker, or a cluster, with the verbs of its
// control. Names that franz-go's kfake has are kfake's.
package kbroker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Cluster is a cluster that runs until Close, or until the test's process ends.
type Cluster struct {
	command *exec.Cmd
	stdin   io.Closer
	url     string
	addrs   []string
	dir     string
}

type settings struct {
	command []string
	brokers int
	seeds   []seed
	faults  string
}

type seed struct {
	partitions int32
	topics     []string
}

// Opt is an option of NewCluster.
type Opt func(*settings)

// NumBrokers sets the number of brokers, 3 unless told.
func NumBrokers(n int) Opt { return func(s *settings) { s.brokers = n } }

// SeedTopics has topics be there from the beginning; -1 leaves the number of partitions to the brokers.
func SeedTopics(partitions int32, topics ...string) Opt {
	return func(s *settings) { s.seeds = append(s.seeds, seed{partitions, topics}) }
}

// Command sets the words that kbroker is run by: kbroker, or KBROKER_COMMAND.
func Command(words ...string) Opt { return func(s *settings) { s.command = words } }

// FaultsFile begins with the faults of a file, a line each as of kbroker faults.
func FaultsFile(path string) Opt { return func(s *settings) { s.faults = path } }

// NewCluster starts a cluster, and returns once clients are served.
func NewCluster(opts ...Opt) (*Cluster, error) {
	chosen := settings{command: []string{"kbroker"}, brokers: 3}
	if words := strings.Fields(os.Getenv("KBROKER_COMMAND")); len(words) > 0 {
		chosen.command = words
	}
	for _, opt := range opts {
		opt(&chosen)
	}
	dir, err := os.MkdirTemp("", "kbroker-")
	if err != nil {
		return nil, err
	}
	words := append(append([]string{}, chosen.command[1:]...), "up", "--until-eof", "-n", strconv.Itoa(chosen.brokers),
		"--port", "0", "--control", "0", "--data", dir)
	if chosen.faults != "" {
		words = append(words, "--faults", chosen.faults)
	}
	command := exec.Command(chosen.command[0], words...)
	command.Stderr = os.Stderr
	c := &Cluster{command: command, dir: dir}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	for _, each := range chosen.seeds {
		for _, topic := range each.topics {
			arguments := map[string]any{}
			if each.partitions > 0 {
				arguments["partitions"] = each.partitions
			}
			if err := c.Do("POST", "/topics/"+topic+"/create", arguments, nil); err != nil {
				c.Close()
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *Cluster) start() error {
	stdin, err := c.command.StdinPipe() // it ends with this process, however that ends
	if err != nil {
		return err
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.command.Start(); err != nil {
		return err
	}
	c.stdin = stdin
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), ": ")
		switch what {
		case "kbroker control":
			c.url = rest
		case "kbroker ready":
			c.addrs = strings.Split(rest, ",")
			go io.Copy(io.Discard, stdout)
			return nil
		}
	}
	return fmt.Errorf("kbroker has ended instead of serving: %v", c.command.Wait())
}

// ListenAddrs returns the brokers' addresses.
func (c *Cluster) ListenAddrs() []string { return c.addrs }

// ControlURL returns where the control is; /openapi.json there tells all verbs.
func (c *Cluster) ControlURL() string { return c.url }

// Close stops the cluster and removes its data.
func (c *Cluster) Close() {
	if c.stdin != nil {
		c.command.Process.Signal(syscall.SIGTERM)
		c.command.Wait()
		c.stdin.Close()
	}
	os.RemoveAll(c.dir)
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
	response, err := http.DefaultClient.Do(request)
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

// Fault has requests go wrong: kind is delay, hold, error, drop or stale-latest. The number is that of Undo.
func (c *Cluster) Fault(kind string, arguments map[string]any) (number int, err error) {
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

// AddNode adds a broker, and returns its id.
func (c *Cluster) AddNode() (nodeID int32, err error) {
	var added struct{ Node int32 }
	err = c.Do("POST", "/nodes", nil, &added)
	return added.Node, err
}

// Node does to a broker what an action says: stop, start, kill, pause or resume.
func (c *Cluster) Node(nodeID int32, action string) error {
	return c.Do("POST", fmt.Sprintf("/nodes/%d/%s", nodeID, action), nil, nil)
}

// Wait waits: what is group, committed, end, drained or requests. The error is a *Problem of status 504 out of time.
func (c *Cluster) Wait(what string, arguments map[string]any, answer any) error {
	return c.Do("POST", "/wait/"+what, arguments, answer)
}

// Reset has everything be as at the beginning.
func (c *Cluster) Reset() error { return c.Do("POST", "/reset", nil, nil) }
