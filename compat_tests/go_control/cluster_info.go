package kbroker

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	answerTime      = 30 * time.Second
	scramIterations = 4096
	latest          = -1
	earliest        = -2
	maxTimestamp    = -3
)

// TopicInfo is a topic as it is now.
type TopicInfo struct {
	Topic       string
	TopicID     [16]byte
	NumReplicas int
	Configs     map[string]*string // that the topic has of its own
}

// PartitionInfo is a partition as it is now.
type PartitionInfo struct {
	Partition        int32
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	Epoch            int32
	MaxTimestamp     int64
	NumBytes         int64
	Leader           int32
}

func (c *Cluster) metadata(topics ...kmsg.MetadataRequestTopic) []kmsg.MetadataResponseTopic {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = topics
	response, err := ask(c, request)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(response.(*kmsg.MetadataResponse).Topics, func(each kmsg.MetadataResponseTopic) bool {
		return each.ErrorCode != 0 || each.Topic == nil
	})
}

func ask(c *Cluster, request kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return c.admin.Request(ctx, request)
}

// TopicInfo returns a topic, nil if there is none.
func (c *Cluster) TopicInfo(topic string) *TopicInfo {
	return c.topicInfo(kmsg.MetadataRequestTopic{Topic: &topic})
}

// TopicIDInfo returns the topic with an id, nil if there is none.
func (c *Cluster) TopicIDInfo(id [16]byte) *TopicInfo {
	return c.topicInfo(kmsg.MetadataRequestTopic{TopicID: id})
}

func (c *Cluster) topicInfo(wanted kmsg.MetadataRequestTopic) *TopicInfo {
	for _, found := range c.metadata(wanted) {
		info := &TopicInfo{Topic: *found.Topic, TopicID: found.TopicID, Configs: map[string]*string{}}
		if len(found.Partitions) > 0 {
			info.NumReplicas = len(found.Partitions[0].Replicas)
		}
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, info.Topic
		request := kmsg.NewPtrDescribeConfigsRequest()
		request.Resources = append(request.Resources, resource)
		response, err := ask(c, request)
		if err != nil {
			return nil
		}
		for _, each := range response.(*kmsg.DescribeConfigsResponse).Resources {
			for _, config := range each.Configs {
				if config.Source == kmsg.ConfigSourceDynamicTopicConfig {
					info.Configs[config.Name] = config.Value
				}
			}
		}
		return info
	}
	return nil
}

// PartitionInfo returns a partition, nil if there is none.
func (c *Cluster) PartitionInfo(topic string, partition int32) *PartitionInfo {
	for _, each := range c.PartitionInfos(topic) {
		if each.Partition == partition {
			return each
		}
	}
	return nil
}

// PartitionInfos returns the partitions of a topic in their order, none if there is no such topic.
func (c *Cluster) PartitionInfos(topic string) []*PartitionInfo {
	var infos []*PartitionInfo
	for _, found := range c.metadata(kmsg.MetadataRequestTopic{Topic: &topic}) {
		for _, each := range found.Partitions {
			infos = append(infos, &PartitionInfo{Partition: each.Partition, Epoch: each.LeaderEpoch, Leader: each.Leader})
		}
	}
	slices.SortFunc(infos, func(a, b *PartitionInfo) int { return int(a.Partition - b.Partition) })
	c.offsets(topic, infos, latest, 0, func(info *PartitionInfo, offset, _ int64) { info.HighWatermark = offset })
	c.offsets(topic, infos, latest, 1, func(info *PartitionInfo, offset, _ int64) { info.LastStableOffset = offset })
	c.offsets(topic, infos, earliest, 0, func(info *PartitionInfo, offset, _ int64) { info.LogStartOffset = offset })
	c.offsets(topic, infos, maxTimestamp, 0, func(info *PartitionInfo, _, timestamp int64) { info.MaxTimestamp = timestamp })
	c.sizes(topic, infos)
	return infos
}

// offsets asks for an offset of each partition.
func (c *Cluster) offsets(topic string, infos []*PartitionInfo, at int64, isolation int8, take func(*PartitionInfo, int64, int64)) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, isolation
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	for _, info := range infos {
		each := kmsg.NewListOffsetsRequestTopicPartition()
		each.Partition, each.Timestamp = info.Partition, at
		wanted.Partitions = append(wanted.Partitions, each)
	}
	request.Topics = append(request.Topics, wanted)
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	for _, shard := range c.admin.RequestSharded(ctx, request) {
		if response, is := shard.Resp.(*kmsg.ListOffsetsResponse); is && shard.Err == nil {
			for _, found := range response.Topics {
				for _, each := range found.Partitions {
					for _, info := range infos {
						if info.Partition == each.Partition && each.ErrorCode == 0 {
							take(info, each.Offset, each.Timestamp)
						}
					}
				}
			}
		}
	}
}

// sizes asks for the bytes of each partition at its leader.
func (c *Cluster) sizes(topic string, infos []*PartitionInfo) {
	request := kmsg.NewPtrDescribeLogDirsRequest()
	wanted := kmsg.NewDescribeLogDirsRequestTopic()
	wanted.Topic = topic
	for _, info := range infos {
		wanted.Partitions = append(wanted.Partitions, info.Partition)
	}
	request.Topics = append(request.Topics, wanted)
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	for _, shard := range c.admin.RequestSharded(ctx, request) {
		response, is := shard.Resp.(*kmsg.DescribeLogDirsResponse)
		if !is || shard.Err != nil {
			continue
		}
		for _, dir := range response.Dirs {
			for _, found := range dir.Topics {
				for _, each := range found.Partitions {
					for _, info := range infos {
						if info.Partition == each.Partition && info.Leader == shard.Meta.NodeID {
							info.NumBytes = each.Size
						}
					}
				}
			}
		}
	}
}

// LeaderFor returns the broker that leads a partition, -1 if there is none.
func (c *Cluster) LeaderFor(topic string, partition int32) int32 {
	for _, found := range c.metadata(kmsg.MetadataRequestTopic{Topic: &topic}) {
		for _, each := range found.Partitions {
			if each.Partition == partition {
				return each.Leader
			}
		}
	}
	return -1
}

// CoordinatorFor returns the broker that coordinates a group, -1 if there is none. Transactional ids have others.
func (c *Cluster) CoordinatorFor(key string) int32 {
	for deadline := time.Now().Add(answerTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		request := kmsg.NewPtrFindCoordinatorRequest()
		request.CoordinatorKey, request.CoordinatorKeys = key, []string{key}
		response, err := ask(c, request)
		if err != nil {
			return -1
		}
		for _, each := range response.(*kmsg.FindCoordinatorResponse).Coordinators {
			if each.ErrorCode == 0 {
				return each.NodeID
			}
			if each.ErrorCode != kerr.CoordinatorNotAvailable.Code { // its topic is being created
				return -1
			}
		}
	}
	return -1
}

// RehashCoordinators has other brokers coordinate groups and transactions: those that follow. One broker keeps them.
func (c *Cluster) RehashCoordinators() { c.moveLeaders(true) }

// ShufflePartitionLeaders has other brokers lead partitions: those that follow. One broker leads them all.
func (c *Cluster) ShufflePartitionLeaders() { c.moveLeaders(false) }

func (c *Cluster) moveLeaders(ofCoordinators bool) {
	for _, topic := range c.topics(ofCoordinators) {
		for _, each := range topic.Partitions {
			if len(each.ISR) > 1 {
				c.Do("POST", "/topics/"+*topic.Topic+"/move-leader", map[string]any{"partition": each.Partition}, nil)
			}
		}
	}
}

func (c *Cluster) topics(isInternal bool) []kmsg.MetadataResponseTopic {
	return slices.DeleteFunc(c.metadata(), func(each kmsg.MetadataResponseTopic) bool { return each.IsInternal != isInternal })
}

// Compact compacts the topics whose cleanup.policy has compact, now.
func (c *Cluster) Compact() { c.ofTopics("compact") }

// ApplyRetention does now what retention.ms and retention.bytes of the topics ask for.
func (c *Cluster) ApplyRetention() { c.ofTopics("apply-retention") }

func (c *Cluster) ofTopics(action string) {
	for _, topic := range c.topics(false) {
		c.Do("POST", "/topics/"+*topic.Topic+"/"+action, nil, nil)
	}
}

// user is a user of SASL.
type user struct {
	method, name, password string
	isSuper                bool
	acls                   []ACL
}

// plainUsers returns the login module with the users of PLAIN.
func (s *settings) plainUsers() string {
	text := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, each := range s.users {
		if each.method == "PLAIN" {
			text += fmt.Sprintf(" user_%s=%q", each.name, each.password)
		}
	}
	return text + ";"
}

// seedSecurity adds the users of SCRAM and the ACLs.
func (c *Cluster) seedSecurity() error {
	if !c.settings.sasl {
		return nil
	}
	scram := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	acls := kmsg.NewPtrCreateACLsRequest()
	for _, each := range c.settings.users {
		if each.method != "PLAIN" {
			credential, err := each.scram()
			if err != nil {
				return err
			}
			scram.Upsertions = append(scram.Upsertions, credential)
		}
		for _, acl := range each.acls {
			acls.Creations = append(acls.Creations, acl.of(each.name))
		}
	}
	if len(scram.Upsertions) > 0 {
		response, err := ask(c, scram)
		if err != nil {
			return err
		}
		for _, each := range response.(*kmsg.AlterUserSCRAMCredentialsResponse).Results {
			if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
				return err
			}
		}
	}
	if len(acls.Creations) == 0 {
		return nil
	}
	response, err := ask(c, acls)
	if err != nil {
		return err
	}
	for _, each := range response.(*kmsg.CreateACLsResponse).Results {
		if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// scram returns the credential of a user, as it is stored.
func (u *user) scram() (kmsg.AlterUserSCRAMCredentialsRequestUpsertion, error) {
	made := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	made.Name, made.Iterations, made.Salt = u.name, scramIterations, []byte(rand.Text())
	var err error
	switch u.method {
	case "SCRAM-SHA-256":
		made.Mechanism = 1
		made.SaltedPassword, err = salted(sha256.New, u.password, made.Salt)
	case "SCRAM-SHA-512":
		made.Mechanism = 2
		made.SaltedPassword, err = salted(sha512.New, u.password, made.Salt)
	default:
		err = fmt.Errorf("there is no SASL mechanism %s here; there are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512", u.method)
	}
	return made, err
}

func salted[H hash.Hash](of func() H, password string, salt []byte) ([]byte, error) {
	return pbkdf2.Key(of, password, salt, scramIterations, of().Size())
}

// of returns an ACL of a user, to be created.
func (a *ACL) of(name string) kmsg.CreateACLsRequestCreation {
	made := kmsg.NewCreateACLsRequestCreation()
	made.Principal = "User:" + strings.TrimPrefix(name, "User:")
	made.ResourceType, made.ResourceName, made.ResourcePatternType = a.Resource, a.Name, a.Pattern
	made.Operation, made.PermissionType, made.Host = a.Operation, kmsg.ACLPermissionTypeDeny, a.Host
	if a.Allow {
		made.PermissionType = kmsg.ACLPermissionTypeAllow
	}
	if made.Host == "" {
		made.Host = "*"
	}
	return made
}
