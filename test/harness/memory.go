package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
)

// AgentPID returns the agent's process on this machine; of several replicas, one. It is 0 for a
// cluster that runs elsewhere.
func (s *System) AgentPID() (int, error) {
	if s.Cluster == nil {
		return 0, nil
	}
	pids, err := s.agentPIDs()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		return pid, nil
	}
	return 0, errors.New("the agent's process was not found")
}

// agentPIDs returns the agent's processes, by their pods.
func (s *System) agentPIDs() (map[string]int, error) {
	pids := map[string]int{}
	err := s.eachProcess("pipeops-agent", func(pid int) error {
		pids[hostname(pid)] = pid
		return nil
	})
	return pids, err
}

// KillPod kills all processes of a program in a pod, as a crash would.
func (s *System) KillPod(program, pod string) error {
	killed := 0
	err := s.eachProcess(program, func(pid int) error {
		if hostname(pid) != pod {
			return nil
		}
		killed++
		if err := unix.Kill(pid, unix.SIGKILL); !errors.Is(err, unix.ESRCH) { // the first one takes the others along
			return err
		}
		return nil
	})
	if err == nil && killed == 0 {
		err = fmt.Errorf("pod %s has no process of %s", pod, program)
	}
	return err
}

// eachProcess finds the processes of a program below the cluster's first one.
func (s *System) eachProcess(program string, found func(pid int) error) error {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || filepath.Base(target) != program {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if !descends(pid, s.Cluster.InitPID()) {
			continue
		}
		if err := found(pid); err != nil {
			return err
		}
	}
	return nil
}

// hostname returns a process's host name: in a pod, the pod's name.
func hostname(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if name, ok := strings.CutPrefix(entry, "HOSTNAME="); ok {
			return name
		}
	}
	return ""
}

// AgentMemory returns the agent's resident memory in bytes, 0 where it cannot be seen.
func (s *System) AgentMemory(context.Context) (int64, error) { return s.agentMemory("VmRSS") }

// AgentOwnMemory returns the part of that which is the process' own. The rest is pages of its
// program, which the kernel drops when it needs memory.
func (s *System) AgentOwnMemory() (int64, error) { return s.agentMemory("RssAnon") }

// AgentPeakMemory returns the most that the agent's process has had resident since
// ForgetPeakMemory, or ever.
func (s *System) AgentPeakMemory(context.Context) (int64, error) { return s.agentMemory("VmHWM") }

// ForgetPeakMemory has the peaks of the agent and of the control plane begin with what the two have
// resident now (proc(5), clear_refs).
func (s *System) ForgetPeakMemory() error {
	agent, err := s.AgentPID()
	if err != nil {
		return err
	}
	for _, pid := range []int{agent, s.ControlPlanePID()} {
		if pid == 0 {
			return errors.New("the process does not run, so its peak memory cannot be reset")
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) agentMemory(field string) (int64, error) {
	pid, err := s.AgentPID()
	if err != nil || pid == 0 {
		return 0, err
	}
	kib, err := statusField(pid, field)
	return kib << 10, err
}

// descends reports whether a process is below another one.
func descends(pid, ancestor int) bool {
	for pid > 1 {
		if pid == ancestor {
			return true
		}
		parent, err := statusField(pid, "PPid")
		if err != nil {
			return false
		}
		pid = int(parent)
	}
	return false
}

// statusField reads a number of /proc/PID/status (proc(5)).
func statusField(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		if rest, ok := strings.CutPrefix(scan.Text(), field+":"); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// AgentGroup returns the memory of the agent's control group, and of the processes in it that the
// kernel has killed. The agent's cluster runs on this machine.
func (s *System) AgentGroup() (cgroup.Memory, error) {
	pid, err := s.AgentPID()
	if err != nil {
		return cgroup.Memory{}, err
	}
	if groups := cgroup.Limits("/", strconv.Itoa(pid)); len(groups) > 0 { // the first is the process' own
		return groups[0], nil
	}
	return cgroup.Memory{}, errors.New("the agent's control group has no memory limit")
}
