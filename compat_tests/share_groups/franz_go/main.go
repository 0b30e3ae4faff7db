// A process that holds members of share groups, by franz-go's share consumer. It takes one JSON command a line, does what
// it says, and answers with one JSON line: {"result": ...} or {"error": NAME, "message": TEXT}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type command struct {
	Op         string
	Member     string
	Topics     []string
	Properties map[string]string
	Ms         int
	Type       string
	Records    []place
}

// A record's topic, partition and offset, as a JSON list.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p *place) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.topic, &p.partition, &p.offset})
}

type delivery struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	Offset        int64  `json:"offset"`
	Value         string `json:"value"`
	DeliveryCount int32  `json:"delivery_count"`
}

type member struct {
	client *kgo.Client
	polled map[place]*kgo.Record
	lock   sync.Mutex
	told   map[string]string // by partition, the error of its acknowledgements since the last commit
}

var types = map[string]kgo.AckStatus{
	"ACCEPT":  kgo.AckAccept,
	"RELEASE": kgo.AckRelease,
	"REJECT":  kgo.AckReject,
	"RENEW":   kgo.AckRenew,
}

func join(c command) (*member, error) {
	m := &member{polled: map[place]*kgo.Record{}, told: map[string]string{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Properties["bootstrap.servers"], ",")...),
		kgo.ShareGroup(c.Properties["group.id"]),
		kgo.ClientID(c.Properties["client.id"]),
		kgo.ConsumeTopics(c.Topics...),
		kgo.ShareAckCallback(m.acknowledged),
		kgo.MaxConcurrentFetches(0), // nothing is fetched before it is polled
	}
	if text := c.Properties["max.poll.records"]; text != "" {
		most, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.ShareMaxRecords(int32(most)))
	}
	if c.Properties["share.acquire.mode"] == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	m.client = client
	return m, err
}

func (m *member) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, each := range results {
		name := fmt.Sprintf("%s-%d", each.Topic, each.Partition)
		if each.Err != nil {
			m.told[name] = errorName(each.Err)
		} else if _, is := m.told[name]; !is {
			m.told[name] = ""
		}
	}
}

func errorName(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func (m *member) poll(ms int) []delivery {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	defer cancel()
	found := []delivery{}
	m.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		m.polled[place{r.Topic, r.Partition, r.Offset}] = r
		found = append(found, delivery{r.Topic, r.Partition, r.Offset, string(r.Value), r.DeliveryCount()})
	})
	return found
}

func (m *member) commit(ms int) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	defer cancel()
	err := m.client.FlushAcks(ctx)
	m.lock.Lock()
	defer m.lock.Unlock()
	told := m.told
	m.told = map[string]string{}
	return told, err
}

func perform(c command, members map[string]*member) (any, error) {
	m := members[c.Member]
	switch c.Op {
	case "join":
		m, err := join(c)
		members[c.Member] = m
		return nil, err
	case "poll":
		return m.poll(c.Ms), nil
	case "acknowledge":
		for _, each := range c.Records {
			m.polled[each].Ack(types[c.Type])
		}
		return nil, nil
	case "commit":
		return m.commit(c.Ms)
	case "close":
		m.client.Close()
		delete(members, c.Member)
		return nil, nil
	}
	return nil, fmt.Errorf("no such op: %s", c.Op)
}

func main() {
	members := map[string]*member{}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		var c command
		answer := map[string]any{}
		err := json.Unmarshal(input.Bytes(), &c)
		if err == nil {
			answer["result"], err = perform(c, members)
		}
		if err != nil {
			answer = map[string]any{"error": errorName(err), "message": err.Error()}
		}
		if output.Encode(answer) != nil {
			return
		}
	}
	for _, m := range members {
		m.client.Close()
	}
}
