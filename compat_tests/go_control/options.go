package kbroker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type settings struct {
	command    []string
	brokers    int
	ports      []int
	seeds      []seed
	faults     string
	dataDir    string
	logger     Logger
	properties map[string]string
	sasl, acls bool
	users      []user
	tls        *tls.Config
}

type seed struct {
	partitions int32
	topics     []string
}

// Opt is an option of NewCluster.
type Opt func(*settings)

func property(name, value string) Opt { return func(s *settings) { s.properties[name] = value } }

// NumBrokers sets the number of brokers, 3 unless told. Their ids begin at 0.
func NumBrokers(n int) Opt { return func(s *settings) { s.brokers = n } }

// Ports sets the brokers' ports, which are in a row, and so their number.
func Ports(ports ...int) Opt { return func(s *settings) { s.ports, s.brokers = ports, len(ports) } }

// SeedTopics has topics be there from the beginning; with partitions that are not positive: DefaultNumPartitions.
func SeedTopics(partitions int32, topics ...string) Opt {
	return func(s *settings) { s.seeds = append(s.seeds, seed{partitions, topics}) }
}

// AllowAutoTopicCreation has topics be created that a client asks for.
func AllowAutoTopicCreation() Opt { return property("auto.create.topics.enable", "true") }

// DefaultNumPartitions sets the number of partitions of topics that are created without one, 10 unless told.
func DefaultNumPartitions(n int) Opt { return property("num.partitions", strconv.Itoa(n)) }

// GroupMinSessionTimeout sets the shortest session time-out of members, 6 s unless told.
func GroupMinSessionTimeout(d time.Duration) Opt {
	return property("group.min.session.timeout.ms", strconv.FormatInt(d.Milliseconds(), 10))
}

// GroupMaxSessionTimeout sets the longest session time-out of members, 5 min unless told.
func GroupMaxSessionTimeout(d time.Duration) Opt {
	return property("group.max.session.timeout.ms", strconv.FormatInt(d.Milliseconds(), 10))
}

// BrokerConfigs sets properties of every broker, by Kafka's names.
func BrokerConfigs(configs map[string]string) Opt {
	return func(s *settings) { maps.Copy(s.properties, configs) }
}

// DataDir keeps the data in a directory, for a later cluster with as many brokers.
func DataDir(dir string) Opt { return func(s *settings) { s.dataDir = dir } }

// SyncWrites has each batch be on the disk before it is acknowledged.
func SyncWrites() Opt { return property("log.flush.interval.messages", "1") }

// SleepOutOfOrder is what a broker does unasked: while a request waits (SleepControl), those on other connections are
// served, and those behind it on its own connection wait.
func SleepOutOfOrder() Opt { return func(*settings) {} }

// WithLogger has a logger be told what kbroker logs.
func WithLogger(logger Logger) Opt { return func(s *settings) { s.logger = logger } }

// Command sets the words that kbroker is run by: kbroker, or KBROKER_COMMAND.
func Command(words ...string) Opt { return func(s *settings) { s.command = words } }

// FaultsFile begins with the faults of a file, a line each as of kbroker faults.
func FaultsFile(path string) Opt { return func(s *settings) { s.faults = path } }

func newSettings(opts []Opt) (settings, error) {
	s := settings{command: []string{"kbroker"}, brokers: 3, properties: map[string]string{
		"auto.create.topics.enable":        "false",
		"num.partitions":                   "10",
		"group.min.session.timeout.ms":     "6000",
		"group.max.session.timeout.ms":     "300000",
		"group.initial.rebalance.delay.ms": "0",
		// Tests like short ones.
		"group.consumer.min.heartbeat.interval.ms": "1",
		"group.consumer.min.session.timeout.ms":    "1",
		"group.share.min.heartbeat.interval.ms":    "1",
		"group.share.min.session.timeout.ms":       "1",
		"group.share.min.record.lock.duration.ms":  "1000",
		// Fewer internal partitions are there sooner.
		"offsets.topic.num.partitions":                 "4",
		"transaction.state.log.num.partitions":         "4",
		"share.coordinator.state.topic.num.partitions": "4",
	}}
	if words := strings.Fields(os.Getenv("KBROKER_COMMAND")); len(words) > 0 {
		s.command = words
	}
	for _, opt := range opts {
		opt(&s)
	}
	for i, port := range s.ports {
		if port != s.ports[0]+i {
			return s, fmt.Errorf("Ports: %v are not in a row", s.ports)
		}
	}
	if s.isSecure() && s.brokers > 1 {
		return s, errors.New("EnableSASL, EnableACLs and TLS are for one broker: NumBrokers(1)")
	}
	if s.acls && !s.sasl {
		return s, errors.New("EnableACLs needs EnableSASL: nobody has a name otherwise")
	}
	if s.sasl && len(s.users) == 0 {
		s.users = []user{{method: "SCRAM-SHA-256", name: "admin", password: "admin", isSuper: true}}
	}
	return s, nil
}

func (s *settings) isSecure() bool { return s.sasl || s.acls || s.tls != nil }

// words returns the command line of a cluster with its data in a directory.
func (s *settings) words(dir string) ([]string, error) {
	port := 0
	if len(s.ports) > 0 {
		port = s.ports[0]
	}
	own := []string{"up", "-n", strconv.Itoa(s.brokers), "--first-node-id", "0", "--port", strconv.Itoa(port), "--data", dir}
	properties := maps.Clone(s.properties)
	if s.brokers == 1 { // sooner there than a cluster of one
		own = []string{"start", "--log-level", "warning", "--data-dir", filepath.Join(dir, "node-0")}
		properties["node.id"] = "0"
		for _, name := range []string{"default.replication.factor", "min.insync.replicas"} {
			if _, is := properties[name]; !is {
				properties[name] = "1"
			}
		}
		if err := s.addListeners(properties, port, dir); err != nil {
			return nil, err
		}
	}
	words := append(slices.Clone(s.command), own...)
	words = append(words, "--until-eof", "--control", "0")
	if s.faults != "" {
		words = append(words, "--faults", s.faults)
	}
	for name, value := range properties {
		words = append(words, "-o", name+"="+value)
	}
	return words, nil
}

// addListeners gives one broker a listener for clients and, if that is secure, another for the control.
func (s *settings) addListeners(properties map[string]string, port int, dir string) error {
	if !s.isSecure() {
		properties["listeners"] = fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:0", port)
		return nil
	}
	protocol := map[bool]string{false: "PLAINTEXT", true: "SSL"}[s.tls != nil]
	if s.sasl {
		protocol = "SASL_" + protocol
	}
	maps.Copy(properties, map[string]string{
		"listeners":                      fmt.Sprintf("CLIENT://127.0.0.1:%d,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", port),
		"listener.security.protocol.map": "CLIENT:" + protocol + ",PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "PLAINTEXT",
	})
	if s.sasl {
		properties["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		properties["listener.name.client.plain.sasl.jaas.config"] = s.plainUsers()
	}
	if s.acls {
		properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		supers := []string{"User:ANONYMOUS"} // the control itself: clients have names
		for _, each := range s.users {
			if each.isSuper {
				supers = append(supers, "User:"+each.name)
			}
		}
		properties["super.users"] = strings.Join(supers, ";")
	}
	if s.tls == nil {
		return nil
	}
	path := filepath.Join(dir, "client.pem")
	properties["listener.name.client.ssl.keystore.type"] = "PEM"
	properties["listener.name.client.ssl.keystore.location"] = path
	return writeCertificate(s.tls, path)
}

// writeCertificate writes a server's certificates and key, as PEM.
func writeCertificate(config *tls.Config, path string) error {
	if len(config.Certificates) != 1 || config.ClientAuth != tls.NoClientCert {
		return errors.New("TLS takes a configuration with one certificate, and asks clients for none")
	}
	own := config.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	for _, each := range own.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: each})...)
	}
	return os.WriteFile(path, text, 0o600)
}

// EnableSASL has clients log in: as users of Superuser and User, or as admin with the password admin by SCRAM-SHA-256.
func EnableSASL() Opt { return func(s *settings) { s.sasl = true } }

// EnableACLs has brokers ask their ACLs about everybody but superusers.
func EnableACLs() Opt { return func(s *settings) { s.acls = true } }

// TLS has clients come by TLS, with the certificate of a server's configuration.
func TLS(c *tls.Config) Opt { return func(s *settings) { s.tls = c } }

// Superuser adds a user who may do everything; the method is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
func Superuser(method, name, password string) Opt {
	return func(s *settings) { s.users = append(s.users, user{method, name, password, true, nil}) }
}

// User adds a user with ACLs, whose principal is this user.
func User(method, name, password string, acls ...ACL) Opt {
	return func(s *settings) { s.users = append(s.users, user{method, name, password, false, acls}) }
}

// ACL is what a user may do, or may not.
type ACL struct {
	Principal string
	Resource  kmsg.ACLResourceType
	Name      string
	Pattern   kmsg.ACLResourcePatternType
	Operation kmsg.ACLOperation
	Allow     bool
	Host      string
}

// LogLevel says how much a logger is told.
type LogLevel int8

const (
	LogLevelNone LogLevel = iota
	LogLevelError
	LogLevelWarn
	LogLevelInfo
	LogLevelDebug
)

// String returns the level's short name.
func (l LogLevel) String() string {
	return map[LogLevel]string{LogLevelError: "ERR", LogLevelWarn: "WRN", LogLevelInfo: "INF", LogLevelDebug: "DBG"}[l]
}

// Logger is told what kbroker logs.
type Logger interface {
	Logf(LogLevel, string, ...any)
}

// BasicLogger returns a logger that writes lines.
func BasicLogger(to io.Writer, level LogLevel) Logger { return &basicLogger{to, level} }

type basicLogger struct {
	to    io.Writer
	level LogLevel
}

func (b *basicLogger) Logf(level LogLevel, format string, arguments ...any) {
	if level <= b.level {
		fmt.Fprintf(b.to, "[%s] %s\n", level, fmt.Sprintf(format, arguments...))
	}
}

// log takes what kbroker logs: for the logger, and the end of it for an error.
type log struct {
	mu     sync.Mutex
	logger Logger
	kept   []byte
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, text...)
	l.kept = l.kept[max(0, len(l.kept)-4000):]
	for line := range strings.Lines(string(text)) {
		if l.logger != nil {
			l.logger.Logf(LogLevelWarn, "%s", strings.TrimSpace(line))
		}
	}
	return len(text), nil
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.kept)
}
