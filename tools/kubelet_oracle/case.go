package main

import (
	"strconv"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Amounts are by resource: cpu in thousandths, memory in bytes, devices by number.
type Amounts map[string]int64

// Case is a node and a pod that is new to it.
type Case struct {
	Policy      string              `json:"policy"`
	Scope       string              `json:"scope"`
	Options     map[string]string   `json:"options"`
	Nodes       []NumaNode          `json:"numa_nodes"`
	CPUs        *CPUs               `json:"cpus"`
	Memory      map[int]Zone        `json:"memory"`
	Devices     map[string][]Device `json:"devices"`
	Allocatable Amounts             `json:"allocatable"`
	Requested   Amounts             `json:"requested"`
	Pod         Pod                 `json:"pod"`
}

// NumaNode has its distance to each node, and its cores.
type NumaNode struct {
	ID        int      `json:"id"`
	Distances []uint64 `json:"distances"`
	Cores     []Cores  `json:"cores"`
}

// Cores are physical cores in a row: the first CPUs of two neighbours are Step apart, the CPUs of one core Stride.
type Cores struct {
	Socket  int `json:"socket"`
	First   int `json:"first"`
	Count   int `json:"count"`
	Step    int `json:"step"`
	Threads int `json:"threads"`
	Stride  int `json:"stride"`
}

// CPUs is the static CPU manager policy's state.
type CPUs struct {
	Free     string            `json:"free"` // as 0-3,8
	Reserved string            `json:"reserved"`
	Options  map[string]string `json:"options"`
}

// Zone is a NUMA node in the Static memory manager policy's state.
type Zone struct {
	Allocatable map[string]uint64 `json:"allocatable"`
	Free        map[string]uint64 `json:"free"`
	Assignments int               `json:"assignments"`
	Group       []int             `json:"group"`
}

// Device is what a plugin announces; Numa null is one without topology.
type Device struct {
	Numa      *[]int64 `json:"numa"`
	Healthy   bool     `json:"healthy"`
	Allocated bool     `json:"allocated"`
}

// Pod and its containers as the API server completed them.
type Pod struct {
	Containers     []Container `json:"containers"`
	InitContainers []Container `json:"init_containers"`
	Requests       Amounts     `json:"requests"`
	Limits         Amounts     `json:"limits"`
	Overhead       Amounts     `json:"overhead"`
}

// Container has restartPolicy Always if it is a sidecar.
type Container struct {
	Name     string  `json:"name"`
	Requests Amounts `json:"requests"`
	Limits   Amounts `json:"limits"`
	Sidecar  bool    `json:"sidecar"`
}

func (c Case) machine() *cadvisor.MachineInfo {
	info := &cadvisor.MachineInfo{}
	sockets := map[int]bool{}
	for _, node := range c.Nodes {
		made := cadvisor.Node{Id: node.ID, Distances: node.Distances, Memory: 1 << 40}
		for _, row := range node.Cores {
			sockets[row.Socket] = true
			for core := range row.Count {
				threads := []int{}
				for thread := range row.Threads {
					threads = append(threads, row.First+core*row.Step+thread*row.Stride)
				}
				made.Cores = append(made.Cores, cadvisor.Core{Id: threads[0], SocketID: row.Socket, Threads: threads})
				info.NumCores += len(threads)
			}
		}
		info.Topology = append(info.Topology, made)
	}
	info.NumSockets = len(sockets)
	return info
}

func (p Pod) object(uid string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}
	for _, container := range p.InitContainers {
		made := container.object()
		if container.Sidecar {
			always := v1.ContainerRestartPolicyAlways
			made.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, made)
	}
	for _, container := range p.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, container.object())
	}
	if len(p.Requests)+len(p.Limits) > 0 {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: p.Requests.list(), Limits: p.Limits.list()}
	}
	pod.Spec.Overhead = p.Overhead.list()
	return pod
}

func (c Container) object() v1.Container {
	return v1.Container{
		Name:      c.Name,
		Resources: v1.ResourceRequirements{Requests: c.Requests.list(), Limits: c.Limits.list()},
	}
}

func (a Amounts) list() v1.ResourceList {
	if len(a) == 0 {
		return nil
	}
	list := v1.ResourceList{}
	for name, amount := range a {
		if name == "cpu" {
			list[v1.ResourceCPU] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
		} else {
			list[v1.ResourceName(name)] = resource.MustParse(strconv.FormatInt(amount, 10))
		}
	}
	return list
}
