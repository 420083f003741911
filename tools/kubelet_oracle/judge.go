package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// judge asks kubelet's handlers in kubelet's order.
func judge(c Case, folder string) Answer {
	info := c.machine()
	topology, err := topologymanager.NewManager(info.Topology, c.Policy, c.Scope, c.Options)
	if err != nil {
		return Answer{Reason: "no start", Message: err.Error()}
	}
	pod := c.Pod.object("pod")
	devices, err := newDevices(c, info, topology, pod, folder)
	if err != nil {
		return Answer{Reason: "no start", Message: err.Error()}
	}
	topology.AddHintProvider(devices)
	if c.CPUs != nil {
		cpus, err := newCPUProvider(c, info, topology)
		if err != nil {
			return Answer{Reason: "no start", Message: err.Error()}
		}
		topology.AddHintProvider(cpus)
	}
	if c.Memory != nil {
		memory, err := newMemoryProvider(c, info, topology)
		if err != nil {
			return Answer{Reason: "no start", Message: err.Error()}
		}
		topology.AddHintProvider(memory)
	}

	others := c.others()
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others}
	if result := topology.Admit(attributes); !result.Admit {
		return Answer{Reason: result.Reason, Message: result.Message}
	}
	resources := lifecycle.NewPredicateAdmitHandler(c.node, keepFailures{}, devices.UpdatePluginResources)
	if result := resources.Admit(attributes); !result.Admit {
		return Answer{Reason: result.Reason, Message: result.Message}
	}
	answer := Answer{Reason: "Admit", Affinities: map[string]*Affinity{}}
	for _, container := range append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		hint := topology.GetAffinity("pod", container.Name)
		affinity := &Affinity{Nodes: []int{}, Preferred: hint.Preferred}
		if hint.NUMANodeAffinity != nil {
			affinity.Nodes = hint.NUMANodeAffinity.GetBits()
		}
		answer.Affinities[container.Name] = affinity
	}
	return answer
}

func (c Case) node() (*v1.Node, error) {
	allocatable := c.Allocatable.list()
	return &v1.Node{Status: v1.NodeStatus{Allocatable: allocatable, Capacity: allocatable}}, nil
}

// others are as many pods as the case says, of which the first has all their requests.
func (c Case) others() []*v1.Pod {
	pods := []*v1.Pod{}
	for range c.Requested["pods"] {
		pods = append(pods, &v1.Pod{})
	}
	if len(pods) > 0 {
		requests := Amounts{}
		for name, amount := range c.Requested {
			if name != "pods" {
				requests[name] = amount
			}
		}
		pods[0] = Pod{Containers: []Container{{Name: "all", Requests: requests}}}.object("others")
	}
	return pods
}

// keepFailures stands where kubelet would evict other pods for a critical one.
type keepFailures struct{}

func (keepFailures) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}
