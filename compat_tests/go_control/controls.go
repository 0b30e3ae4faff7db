package kbroker

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const allKeys = -1

type controlFunction func(kmsg.Request) (kmsg.Response, error, bool)

// control is a function that decides about requests.
type control struct {
	function   controlFunction
	keep, drop bool
}

// interception is a fault of the control's: requests that wait until they are taken and decided about.
type interception struct {
	number int
	key    int16
}

// controls are the functions, by the keys that they are for, and what makes requests wait for them.
type controls struct {
	c       *Cluster
	pollers sync.WaitGroup
	over    chan struct{}
	serial  chan struct{} // holds one thing while a function runs

	asking sync.Mutex // while interceptions are made and undone, which takes a while

	mu            sync.Mutex
	functions     map[int16][]*control
	interceptions map[int16]*interception
	current       *control
	node          int32
}

func (s *controls) begin(c *Cluster) {
	s.c, s.node = c, -1
	s.over, s.serial = make(chan struct{}), make(chan struct{}, 1)
	s.functions, s.interceptions = map[int16][]*control{}, map[int16]*interception{}
}

// Control has a function decide about any request of a client. See ControlKey.
func (c *Cluster) Control(function func(kmsg.Request) (kmsg.Response, error, bool)) {
	c.ControlKey(allKeys, function)
}

// ControlKey has a function decide about requests of an API, before the brokers see them. What it returns with true is
// the answer, or (an error) closes the connection, or (neither) there is none; with false the next function of the key
// decides, then those of Control, then the brokers, who see what a function has changed in a request.
//
// A function that has decided is dropped, unless it calls KeepControl. One function runs at a time; SleepControl lets
// others run meanwhile.
func (c *Cluster) ControlKey(key int16, function func(kmsg.Request) (kmsg.Response, error, bool)) {
	s := &c.controls
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	s.functions[key] = append(s.functions[key], &control{function: function})
	isThere := s.interceptions[key] != nil || s.interceptions[allKeys] != nil
	s.mu.Unlock()
	if isThere || s.isOver() {
		return
	}
	arguments := map[string]any{"patience": 3600}
	if key != allKeys {
		arguments["api"] = key
	}
	number, err := c.Inject("intercept", arguments)
	if err != nil {
		panic(fmt.Errorf("ControlKey(%d): %w", key, err))
	}
	made := &interception{number, key}
	s.mu.Lock()
	s.interceptions[key] = made
	s.mu.Unlock()
	s.pollers.Go(func() { s.poll(made) })
}

// KeepControl keeps the function that runs, also if it decides.
func (c *Cluster) KeepControl() {
	c.controls.change(func(running *control) { running.keep = true })
}

// DropControl drops the function that runs, also if it does not decide, or has been kept.
func (c *Cluster) DropControl() {
	c.controls.change(func(running *control) { running.drop = true })
}

// CurrentNode returns the broker that has the request of the function that runs; -1 where none runs.
func (c *Cluster) CurrentNode() int32 {
	c.controls.mu.Lock()
	defer c.controls.mu.Unlock()
	return c.controls.node
}

// SleepControl waits in a function until wakeup returns, or the cluster is closed. Other functions run meanwhile.
func (c *Cluster) SleepControl(wakeup func()) {
	s := &c.controls
	s.mu.Lock()
	running, node := s.current, s.node
	s.mu.Unlock()
	if running == nil {
		return
	}
	s.leave()
	awake := make(chan struct{})
	go func() {
		defer close(awake)
		wakeup()
	}()
	select {
	case <-awake:
	case <-s.over:
	}
	s.enter(running, node)
}

func (s *controls) change(how func(*control)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		how(s.current)
	}
}

func (s *controls) enter(running *control, node int32) {
	s.serial <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.node = running, node
}

func (s *controls) leave() {
	s.mu.Lock()
	s.current, s.node = nil, -1
	s.mu.Unlock()
	<-s.serial
}

func (s *controls) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s *controls) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.functions)
	clear(s.interceptions) // the control ends them itself
}

func (s *controls) end() {
	close(s.over)
	s.clear()
}

// taken is a request that waits.
type taken struct {
	Number, Node int32
	API          int16 `json:"api_key"`
	Version      int16 `json:"api_version"`
	Body         []byte
}

// poll takes the requests of an interception until it is undone.
func (s *controls) poll(from *interception) {
	for !s.isOver() {
		var found struct{ Requests []taken }
		err := s.c.Do("POST", fmt.Sprintf("/faults/%d/take", from.number), map[string]any{"timeout": 10}, &found)
		if problem := (*Problem)(nil); errors.As(err, &problem) && problem.Status != 404 && !s.isOver() {
			panic(err)
		} else if err != nil {
			return
		}
		for _, each := range found.Requests {
			go s.decide(from, each)
		}
	}
}

// decide asks the functions about a request, and tells the control.
func (s *controls) decide(from *interception, asked taken) {
	request := kmsg.RequestForKey(asked.API)
	decision := map[string]any{"request": asked.Number, "action": "pass"}
	if request != nil {
		request.SetVersion(asked.Version)
		if err := request.ReadFrom(asked.Body); err == nil {
			before := request.AppendTo(nil)
			response, err, handled := s.run(from, asked, request)
			switch {
			case handled && err != nil:
				decision["action"] = "close"
			case handled && response == nil:
				decision = nil // there is no answer, ever
			case handled:
				response.SetVersion(asked.Version)
				decision["action"], decision["body"] = "answer", response.AppendTo(nil)
			default:
				if after := request.AppendTo(nil); !bytes.Equal(before, after) {
					decision["body"] = after
				}
			}
		}
	}
	if decision != nil {
		err := s.c.Do("POST", fmt.Sprintf("/faults/%d/decide", from.number), decision, nil)
		if problem := (*Problem)(nil); errors.As(err, &problem) && problem.Status == 400 {
			panic(fmt.Errorf("the answer to %s: %w", kmsg.NameForKey(asked.API), err))
		}
	}
	s.release()
}

// run runs the functions that are for a request, one after the other, until one decides.
func (s *controls) run(from *interception, asked taken, request kmsg.Request) (kmsg.Response, error, bool) {
	s.mu.Lock()
	keys := []int16{asked.API}
	if from.key == allKeys && s.interceptions[asked.API] != nil {
		keys = nil // those of this key have been asked before
	}
	if from.key == allKeys {
		keys = append(keys, allKeys)
	}
	s.mu.Unlock()
	for _, key := range keys {
		s.mu.Lock()
		functions := slices.Clone(s.functions[key])
		s.mu.Unlock()
		for _, each := range functions {
			s.enter(each, asked.Node)
			if !s.has(key, each) { // another request's, meanwhile
				s.leave()
				continue
			}
			response, err, handled := each.function(request)
			s.mu.Lock()
			if handled && !each.keep || each.drop {
				s.functions[key] = slices.DeleteFunc(slices.Clone(s.functions[key]), func(other *control) bool { return other == each })
			}
			s.mu.Unlock()
			s.leave()
			if handled {
				return response, err, true
			}
		}
	}
	return nil, nil, false
}

func (s *controls) has(key int16, one *control) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.functions[key], one)
}

// release undoes the interceptions that no function needs any more.
func (s *controls) release() {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	var unneeded []*interception
	for key, each := range s.interceptions {
		isNeeded := len(s.functions[key]) > 0
		for other, functions := range s.functions {
			isNeeded = isNeeded || key == allKeys && s.interceptions[other] == nil && len(functions) > 0
		}
		if !isNeeded {
			unneeded = append(unneeded, each)
			delete(s.interceptions, key)
		}
	}
	s.mu.Unlock()
	for _, each := range unneeded {
		s.c.Undo(each.number)
	}
}
