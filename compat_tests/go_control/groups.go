package kbroker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GroupInfo is a group as it is now: classic, of the consumer protocol, or a share group.
type GroupInfo struct {
	Group   string
	State   string
	Epoch   int32         // 0 of a classic group, whose generation brokers do not tell
	Members []GroupMember // by their ids
	Commits map[string]map[int32]GroupCommit
}

// GroupCommit is an offset that a group has committed.
type GroupCommit struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// GroupMember is a member of a group.
type GroupMember struct {
	MemberID         string
	InstanceID       *string
	ClientID         string
	ClientHost       string
	SubscribedTopics []string
	Assignment       map[string][]int32
}

// NumAssigned returns how many partitions a member has.
func (m *GroupMember) NumAssigned() int {
	n := 0
	for _, partitions := range m.Assignment {
		n += len(partitions)
	}
	return n
}

// NumAssigned returns how many partitions the members have.
func (g *GroupInfo) NumAssigned() int {
	n := 0
	for i := range g.Members {
		n += g.Members[i].NumAssigned()
	}
	return n
}

// GroupInfo returns a group, nil if there is none.
func (c *Cluster) GroupInfo(group string) *GroupInfo {
	for _, describe := range []func(string) *GroupInfo{c.consumerGroup, c.shareGroup, c.classicGroup} {
		if found := describe(group); found != nil {
			slices.SortFunc(found.Members, func(a, b GroupMember) int { return cmp.Compare(a.MemberID, b.MemberID) })
			found.Commits = c.commits(group)
			return found
		}
	}
	return nil
}

// WaitGroupStable waits until a group is stable with so many members, -1 for any number.
func (c *Cluster) WaitGroupStable(ctx context.Context, group string, members int) (*GroupInfo, error) {
	return c.WaitGroupInfo(ctx, group, func(g *GroupInfo) bool {
		return g != nil && g.State == "Stable" && (members < 0 || len(g.Members) == members)
	})
}

// WaitGroupInfo waits until a group, nil while there is none, is as a function says.
func (c *Cluster) WaitGroupInfo(ctx context.Context, group string, is func(*GroupInfo) bool) (*GroupInfo, error) {
	for {
		found := c.GroupInfo(group)
		if is(found) {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) consumerGroup(group string) *GroupInfo {
	request := kmsg.NewPtrConsumerGroupDescribeRequest()
	request.Groups = []string{group}
	response, err := ask(c, request)
	if err != nil {
		return nil
	}
	for _, each := range response.(*kmsg.ConsumerGroupDescribeResponse).Groups {
		if each.ErrorCode != 0 {
			return nil
		}
		found := &GroupInfo{Group: group, State: each.State, Epoch: each.Epoch}
		for _, of := range each.Members {
			member := GroupMember{of.MemberID, of.InstanceID, of.ClientID, of.ClientHost, of.SubscribedTopics, map[string][]int32{}}
			for _, topic := range of.Assignment.TopicPartitions {
				member.Assignment[topic.Topic] = topic.Partitions
			}
			found.Members = append(found.Members, member)
		}
		return found
	}
	return nil
}

func (c *Cluster) shareGroup(group string) *GroupInfo {
	request := kmsg.NewPtrShareGroupDescribeRequest()
	request.GroupIDs = []string{group}
	response, err := ask(c, request)
	if err != nil {
		return nil
	}
	for _, each := range response.(*kmsg.ShareGroupDescribeResponse).Groups {
		if each.ErrorCode != 0 {
			return nil
		}
		found := &GroupInfo{Group: group, State: each.GroupState, Epoch: each.GroupEpoch}
		for _, of := range each.Members {
			member := GroupMember{of.MemberID, nil, of.ClientID, of.ClientHost, of.SubscribedTopicNames, map[string][]int32{}}
			for _, topic := range of.Assignment.TopicPartitions {
				member.Assignment[topic.Topic] = topic.Partitions
			}
			found.Members = append(found.Members, member)
		}
		return found
	}
	return nil
}

func (c *Cluster) classicGroup(group string) *GroupInfo {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{group}
	response, err := ask(c, request)
	if err != nil {
		return nil
	}
	for _, each := range response.(*kmsg.DescribeGroupsResponse).Groups {
		if each.ErrorCode != 0 || each.State == "Dead" {
			return nil
		}
		found := &GroupInfo{Group: group, State: each.State}
		for _, of := range each.Members {
			member := GroupMember{of.MemberID, of.InstanceID, of.ClientID, of.ClientHost, nil, map[string][]int32{}}
			if each.ProtocolType == "consumer" {
				metadata, assignment := kmsg.NewConsumerMemberMetadata(), kmsg.NewConsumerMemberAssignment()
				if metadata.ReadFrom(of.ProtocolMetadata) == nil {
					member.SubscribedTopics = metadata.Topics
				}
				if assignment.ReadFrom(of.MemberAssignment) == nil {
					for _, topic := range assignment.Topics {
						member.Assignment[topic.Topic] = topic.Partitions
					}
				}
			}
			found.Members = append(found.Members, member)
		}
		return found
	}
	return nil
}

func (c *Cluster) commits(group string) map[string]map[int32]GroupCommit {
	request := kmsg.NewPtrOffsetFetchRequest()
	wanted := kmsg.NewOffsetFetchRequestGroup()
	wanted.Group = group
	request.Groups = append(request.Groups, wanted)
	response, err := ask(c, request)
	if err != nil {
		return nil
	}
	commits := map[string]map[int32]GroupCommit{}
	for _, found := range response.(*kmsg.OffsetFetchResponse).Groups {
		for _, topic := range found.Topics {
			name := topic.Topic
			if info := c.TopicIDInfo(topic.TopicID); name == "" && info != nil {
				name = info.Topic
			}
			for _, each := range topic.Partitions {
				if each.ErrorCode != 0 || each.Offset < 0 {
					continue
				}
				if commits[name] == nil {
					commits[name] = map[int32]GroupCommit{}
				}
				commit := GroupCommit{Offset: each.Offset, LeaderEpoch: each.LeaderEpoch}
				if each.Metadata != nil {
					commit.Metadata = *each.Metadata
				}
				commits[name][each.Partition] = commit
			}
		}
	}
	return commits
}

// CreateTopic creates a topic, with DefaultNumPartitions unless told, and the brokers' number of replicas.
func (c *Cluster) CreateTopic(topic string, partitions int32, configs map[string]string) error {
	arguments := map[string]any{"configs": configs}
	if partitions > 0 {
		arguments["partitions"] = partitions
	}
	return kafkaError(c.Do("POST", "/topics/"+topic+"/create", arguments, nil))
}

// DeleteTopic deletes a topic.
func (c *Cluster) DeleteTopic(topic string) error {
	return kafkaError(c.Do("POST", "/topics/"+topic+"/delete", nil, nil))
}

// DeleteRecords deletes the records of a partition before an offset, -1 for all.
func (c *Cluster) DeleteRecords(topic string, partition int32, offset int64) error {
	arguments := map[string]any{"partition": partition}
	if offset >= 0 {
		arguments["before"] = offset
	}
	return kafkaError(c.Do("POST", "/topics/"+topic+"/delete-records", arguments, nil))
}

// SetGroupConfigs sets configs of a group, which need not be there.
func (c *Cluster) SetGroupConfigs(group string, configs map[string]string) {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range configs {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	ask(c, request)
}

// kafkaError returns Kafka's own error for a problem that has one.
func kafkaError(err error) error {
	if problem, is := err.(*Problem); is && problem.Code != "" {
		for code := int16(1); code < 200; code++ {
			if found := kerr.TypedErrorForCode(code); found != nil && found.Message == problem.Code {
				return found
			}
		}
	}
	return err
}
