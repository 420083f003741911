package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"unsafe"

	cadvisor "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
)

type hints = map[string][]topologymanager.TopologyHint

// cpuProvider is kubelet's policy with its state, without the manager's loop over containers.
type cpuProvider struct {
	policy cpumanager.Policy
	state  cpustate.State
}

func (p cpuProvider) GetTopologyHints(pod *v1.Pod, container *v1.Container) hints {
	return p.policy.GetTopologyHints(p.state, pod, container)
}
func (p cpuProvider) GetPodTopologyHints(pod *v1.Pod) hints {
	return p.policy.GetPodTopologyHints(p.state, pod)
}
func (p cpuProvider) Allocate(pod *v1.Pod, container *v1.Container) error {
	return p.policy.Allocate(p.state, pod, container)
}

func newCPUProvider(c Case, info *cadvisor.MachineInfo, store topologymanager.Store) (cpuProvider, error) {
	layout, err := topology.Discover(info)
	if err != nil {
		return cpuProvider{}, err
	}
	reserved, err := cpuset.Parse(c.CPUs.Reserved)
	if err != nil {
		return cpuProvider{}, err
	}
	shared, err := cpuset.Parse(c.CPUs.Free)
	if err != nil {
		return cpuProvider{}, err
	}
	policy, err := cpumanager.NewStaticPolicy(layout, reserved.Size(), reserved, store, c.CPUs.Options)
	if err != nil {
		return cpuProvider{}, err
	}
	state := cpustate.NewMemoryState()
	if c.CPUs.Options["strict-cpu-reservation"] != "true" {
		shared = shared.Union(reserved)
	}
	state.SetDefaultCPUSet(shared)
	return cpuProvider{policy, state}, nil
}

// memoryProvider is the same for memory.
type memoryProvider struct {
	policy memorymanager.Policy
	state  memorystate.State
}

func (p memoryProvider) GetTopologyHints(pod *v1.Pod, container *v1.Container) hints {
	return p.policy.GetTopologyHints(context.Background(), p.state, pod, container)
}
func (p memoryProvider) GetPodTopologyHints(pod *v1.Pod) hints {
	return p.policy.GetPodTopologyHints(context.Background(), p.state, pod)
}
func (p memoryProvider) Allocate(pod *v1.Pod, container *v1.Container) error {
	return p.policy.Allocate(context.Background(), p.state, pod, container)
}

func newMemoryProvider(c Case, info *cadvisor.MachineInfo, store topologymanager.Store) (memoryProvider, error) {
	reserved := map[int]map[v1.ResourceName]uint64{0: {v1.ResourceMemory: 1}}
	policy, err := memorymanager.NewPolicyStatic(context.Background(), info, reserved, store)
	if err != nil {
		return memoryProvider{}, err
	}
	zones := memorystate.NUMANodeMap{}
	for id, zone := range c.Memory {
		tables := map[v1.ResourceName]*memorystate.MemoryTable{}
		for name, size := range zone.Allocatable {
			free := zone.Free[name]
			tables[v1.ResourceName(name)] = &memorystate.MemoryTable{
				Allocatable: size, Free: free, Reserved: size - free, TotalMemSize: size,
			}
		}
		zones[id] = &memorystate.NUMANodeState{NumberOfAssignments: zone.Assignments, MemoryMap: tables, Cells: zone.Group}
	}
	state := memorystate.NewMemoryState(klog.Background())
	state.SetMachineState(zones)
	return memoryProvider{policy, state}, nil
}

// kubelet's constructor with another socket than that of the machine's kubelet.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(socket string, nodes []cadvisor.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

// newDevices is a device manager to which the case's plugins have connected, with the allocations of another pod.
func newDevices(c Case, info *cadvisor.MachineInfo, store topologymanager.Store, pod *v1.Pod, folder string) (*devicemanager.ManagerImpl, error) {
	own, err := os.MkdirTemp(folder, "")
	if err != nil {
		return nil, err
	}
	manager, err := newDeviceManager(filepath.Join(own, "kubelet.sock"), info.Topology, store)
	if err != nil {
		return nil, err
	}
	other := &v1.Pod{}
	other.UID = "other"
	setField(manager, "activePods", devicemanager.ActivePodsFunc(func() []*v1.Pod { return []*v1.Pod{other, pod} }))
	for name, devices := range c.Devices {
		if err := connect(manager, other, name, devices); err != nil {
			return nil, err
		}
	}
	return manager, nil
}

func connect(manager *devicemanager.ManagerImpl, other *v1.Pod, name string, devices []Device) error {
	made := &plugin{resource: name}
	if err := manager.PluginConnected(name, made); err != nil {
		return err
	}
	healthy, announced := []*api.Device{}, []*api.Device{}
	for index, device := range devices {
		id := strconv.Itoa(index)
		one := api.Device{ID: id, Health: api.Healthy, Topology: device.topology()}
		two := one
		if !device.Healthy {
			two.Health = api.Unhealthy
		}
		healthy, announced = append(healthy, &one), append(announced, &two)
		if device.Allocated {
			made.preferred = append(made.preferred, id)
		}
	}
	// A device falls ill after another pod got it: that is how one is both allocated and unhealthy.
	manager.PluginListAndWatchReceiver(name, &api.ListAndWatchResponse{Devices: healthy})
	if count := int64(len(made.preferred)); count > 0 {
		holder := Container{Name: "holder-of-" + name, Limits: Amounts{name: count}}.object()
		other.Spec.Containers = append(other.Spec.Containers, holder)
		if err := manager.Allocate(other, &holder); err != nil {
			return fmt.Errorf("allocate for the other pod: %w", err)
		}
	}
	made.preferred = nil
	manager.PluginListAndWatchReceiver(name, &api.ListAndWatchResponse{Devices: announced})
	return nil
}

func (d Device) topology() *api.TopologyInfo {
	if d.Numa == nil {
		return nil
	}
	info := &api.TopologyInfo{}
	for _, id := range *d.Numa {
		info.Nodes = append(info.Nodes, &api.NUMANode{ID: id})
	}
	return info
}

func setField(of any, name string, value any) {
	field := reflect.ValueOf(of).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// plugin answers kubelet in place of a device plugin behind a socket.
type plugin struct {
	api.DevicePluginClient
	resource  string
	preferred []string
}

func (p *plugin) API() api.DevicePluginClient { return p }
func (p *plugin) Resource() string            { return p.resource }
func (p *plugin) SocketPath() string          { return "" }

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty, ...grpc.CallOption) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest, ...grpc.CallOption) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{
		ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: p.preferred}},
	}, nil
}

func (p *plugin) Allocate(context.Context, *api.AllocateRequest, ...grpc.CallOption) (*api.AllocateResponse, error) {
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{}}}, nil
}
