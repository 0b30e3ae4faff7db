package kbroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	c, err := NewCluster(NumBrokers(3), SeedTopics(2, "orders"))
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("orders"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ClientID("shop"))
	must(t, err)
	defer client.Close()
	must(t, client.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr())

	fault, err := c.Inject("error", map[string]any{"api": "Produce", "code": "POLICY_VIOLATION", "times": 1})
	must(t, err)
	if err := client.ProduceSync(ctx, kgo.StringRecord("refused")).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Fatal(err)
	}
	if hits, err := c.Undo(fault); err != nil || hits != 1 {
		t.Fatal(hits, err)
	}

	must(t, c.Do("POST", "/requests/record", nil, nil))
	for node := int32(0); node < 3; node++ {
		must(t, c.MoveTopicPartition("orders", 0, node))
		must(t, client.ProduceSync(ctx, kgo.StringRecord("moved")).FirstErr())
	}
	must(t, c.Node(2, "kill"))
	must(t, client.ProduceSync(ctx, kgo.StringRecord("without node 2")).FirstErr())
	must(t, c.Node(2, "start"))
	var seen struct{ Offset int64 }
	must(t, c.Wait("end", map[string]any{"topic": "orders", "offset": 5}, &seen))
	if seen.Offset != 5 {
		t.Fatal(seen)
	}
	must(t, c.Wait("requests", map[string]any{"api": "Produce", "client_id": "^shop$", "count": 4}, nil))

	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	defer consumer.Close()
	must(t, c.Wait("group", map[string]any{"group": "billing", "state": "Stable", "members": 1}, nil))
	for read := 0; read < 5; {
		fetches := consumer.PollFetches(ctx)
		must(t, fetches.Err0())
		read += fetches.NumRecords()
	}
	must(t, consumer.CommitUncommittedOffsets(ctx))
	must(t, c.Wait("drained", map[string]any{"topic": "orders", "group": "billing"}, nil))

	if node, _, err := c.AddNode(-1, 0); err != nil || node != 3 {
		t.Fatal(node, err)
	}
	var late *Problem
	err = c.Wait("group", map[string]any{"group": "billing", "members": 2, "timeout": 0}, nil)
	if !errors.As(err, &late) || late.Status != 504 {
		t.Fatal(err)
	}
	must(t, c.Reset())
}
