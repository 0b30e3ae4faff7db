package kbroker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// patience is for a machine that is very busy.
const patience = 3 * time.Minute

func newClient(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("orders")}, opts...)...)
	must(t, err)
	t.Cleanup(client.Close)
	return client
}

func newCluster(t *testing.T, opts ...Opt) (*Cluster, context.Context) {
	t.Helper()
	c, err := NewCluster(append([]Opt{SeedTopics(1, "orders")}, opts...)...)
	must(t, err)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c, ctx
}

// refuse answers a Produce with an error.
func refuse(request kmsg.Request, code int16) kmsg.Response {
	asked := request.(*kmsg.ProduceRequest)
	answer := asked.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range asked.Topics {
		refused := kmsg.NewProduceResponseTopic()
		refused.Topic, refused.TopicID = topic.Topic, topic.TopicID
		for _, each := range topic.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode = each.Partition, code
			refused.Partitions = append(refused.Partitions, partition)
		}
		answer.Topics = append(answer.Topics, refused)
	}
	return answer
}

func TestControlsOfOneBroker(t *testing.T)    { testControls(t, NumBrokers(1)) }
func TestControlsOfThreeBrokers(t *testing.T) { testControls(t, NumBrokers(3)) }

func testControls(t *testing.T, brokers Opt) {
	c, ctx := newCluster(t, brokers)
	client := newClient(t, c)

	// A function answers one request, and is gone then.
	node := int32(-1)
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		node = c.CurrentNode()
		return refuse(request, kerr.PolicyViolation.Code), nil, true
	})
	if err := client.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Fatal(err)
	}
	must(t, client.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr())
	if leader := c.LeaderFor("orders", 0); node != leader || c.CurrentNode() != -1 {
		t.Fatal(node, leader)
	}

	// What does not decide stays, until it is dropped; functions are asked in their order, those of Control last.
	var mu sync.Mutex
	var order []string
	see := func(name string, keep func()) controlFunction {
		return func(request kmsg.Request) (kmsg.Response, error, bool) {
			keep()
			mu.Lock()
			defer mu.Unlock()
			if request.Key() == int16(kmsg.Produce) {
				order = append(order, name)
			}
			return nil, nil, false
		}
	}
	c.Control(see("all", func() {}))
	c.ControlKey(int16(kmsg.Produce), see("once", c.DropControl))
	c.ControlKey(int16(kmsg.Produce), see("always", c.KeepControl))
	must(t, client.ProduceSync(ctx, kgo.StringRecord("b")).FirstErr())
	must(t, client.ProduceSync(ctx, kgo.StringRecord("c")).FirstErr())
	mu.Lock()
	seen := order
	mu.Unlock()
	if len(seen) != 5 || seen[0] != "once" || seen[1] != "always" || seen[2] != "all" || seen[3] != "always" {
		t.Fatal(seen)
	}
	must(t, c.Reset())
	must(t, c.Do("POST", "/topics/orders/create", map[string]any{"partitions": 1}, nil))

	// A function changes a request; an error closes the connection, and the client comes again.
	client = newClient(t, c)
	var closed atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		closed.Store(true)
		return nil, errors.New("gone"), true
	})
	must(t, client.ProduceSync(ctx, kgo.StringRecord("d")).FirstErr())
	if !closed.Load() {
		t.Fatal("no request was seen")
	}
	c.ControlKey(int16(kmsg.CreateTopics), func(request kmsg.Request) (kmsg.Response, error, bool) {
		request.(*kmsg.CreateTopicsRequest).Topics[0].NumPartitions = 7
		c.DropControl()
		return nil, nil, false
	})
	create := kmsg.NewPtrCreateTopicsRequest()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = "seven", 1, -1
	create.Topics, create.TimeoutMillis = append(create.Topics, wanted), 60_000
	_, err := create.RequestWith(ctx, client)
	must(t, err)
	// The controller has answered; the node that is asked hears of the topic a moment later.
	for deadline := time.Now().Add(patience); len(c.PartitionInfos("seven")) != 7; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(len(c.PartitionInfos("seven")))
		}
	}

	// A function sleeps until another has seen a request on another connection.
	produced := make(chan struct{})
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { <-produced })
		c.DropControl()
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(produced)
		c.DropControl()
		return nil, nil, false
	})
	consumer := newClient(t, c, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, client.ProduceSync(ctx, kgo.StringRecord("e")).FirstErr())
	for read := 0; read < 2; {
		fetches := consumer.PollFetches(ctx)
		must(t, fetches.Err0())
		read += fetches.NumRecords()
	}

	info, partition := c.TopicInfo("orders"), c.PartitionInfo("orders", 0)
	if info == nil || info.NumReplicas == 0 || c.TopicIDInfo(info.TopicID).Topic != "orders" {
		t.Fatal(info)
	}
	if partition.HighWatermark != 2 || partition.LastStableOffset != 2 || partition.NumBytes == 0 || partition.MaxTimestamp <= 0 {
		t.Fatal(partition)
	}
	if c.TopicInfo("nowhere") != nil || c.PartitionInfo("orders", 9) != nil || c.LeaderFor("nowhere", 0) != -1 {
		t.Fatal("there is something that is not there")
	}
}

func TestCoordinatorsAndLeadersMove(t *testing.T) {
	c, _ := newCluster(t, NumBrokers(3), AllowAutoTopicCreation(), DefaultNumPartitions(2))
	before, leader := c.CoordinatorFor("billing"), c.LeaderFor("orders", 0)
	if before < 0 || leader < 0 {
		t.Fatal(before, leader)
	}
	c.RehashCoordinators()
	c.ShufflePartitionLeaders()
	if c.CoordinatorFor("billing") == before || c.LeaderFor("orders", 0) == leader {
		t.Fatal("nothing has moved")
	}
	c.Compact()
	c.ApplyRetention()
	gone := c.CoordinatorFor("billing")
	must(t, c.RemoveNode(gone))
	if c.CoordinatorFor("billing") == gone || len(c.ListenAddrs()) != 2 {
		t.Fatal("the broker is still there")
	}
}

func TestUsersAndTLS(t *testing.T) {
	if _, err := NewCluster(EnableSASL()); err == nil {
		t.Fatal("three brokers have users")
	}
	certificate := selfSigned(t)
	c, ctx := newCluster(t, NumBrokers(1), EnableSASL(), EnableACLs(), TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		Superuser("SCRAM-SHA-512", "admin", `pa"ss`), Superuser("PLAIN", "root", `pa"ss`),
		User("SCRAM-SHA-256", "reader", "word", ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders",
			Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}))
	byTLS := kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true})
	for _, mechanism := range []kgo.Opt{
		kgo.SASL(scram.Auth{User: "admin", Pass: `pa"ss`}.AsSha512Mechanism()),
		kgo.SASL(plain.Auth{User: "root", Pass: `pa"ss`}.AsMechanism()),
	} {
		must(t, newClient(t, c, byTLS, mechanism).ProduceSync(ctx, kgo.StringRecord("a")).FirstErr())
	}
	reader := newClient(t, c, byTLS, kgo.DisableIdempotentWrite(), kgo.SASL(scram.Auth{User: "reader", Pass: "word"}.AsSha256Mechanism()))
	if err := reader.ProduceSync(ctx, kgo.StringRecord("b")).FirstErr(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		return refuse(request, kerr.PolicyViolation.Code), nil, true
	})
	if err := reader.ProduceSync(ctx, kgo.StringRecord("b")).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Fatal(err)
	}
}

// selfSigned returns a certificate for 127.0.0.1.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
}
