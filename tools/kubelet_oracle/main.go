// Kubelet's own answer to whether a pod is admitted: a case a line on stdin, an answer a line on stdout.
//
// The topology, CPU, device and memory managers and the check of node resources are kubelet's; what it would learn from
// a machine, device plugins and other pods is made from the case. Nothing outside a folder of its own is touched.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features"
)

// hangs is how long one case may take; kubelet has searches that do not end, and then it would hang too.
const hangs = 20 * time.Second

// Answer is kubelet's: the reason is that of the pod's status, or Admit.
type Answer struct {
	Reason     string               `json:"reason"`
	Message    string               `json:"message,omitempty"`
	Affinities map[string]*Affinity `json:"affinities,omitempty"`
}

// Affinity is the Topology Manager's hint for a container; no nodes is no preference.
type Affinity struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"is_preferred"`
}

func main() {
	klog.SetLogger(logr.Discard())
	for _, gate := range []string{"CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "TopologyManagerPolicyBetaOptions"} {
		must(utilfeature.DefaultMutableFeatureGate.Set(gate + "=true"))
	}
	folder, err := os.MkdirTemp("/dev/shm", "kubelet-oracle-")
	must(err)
	defer os.RemoveAll(folder)

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c Case
		must(json.Unmarshal(lines.Bytes(), &c))
		given := answer(c, folder)
		must(out.Encode(given))
		if given.Reason == "hang" {
			return // with what still runs; whoever asks starts another
		}
	}
	must(lines.Err())
}

func answer(c Case, folder string) Answer {
	done := make(chan Answer, 1)
	go func() {
		defer func() {
			if crash := recover(); crash != nil {
				done <- Answer{Reason: "crash", Message: fmt.Sprint(crash)}
			}
		}()
		done <- judge(c, folder)
	}()
	select {
	case a := <-done:
		return a
	case <-time.After(hangs):
		return Answer{Reason: "hang"}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
