package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// SignalComponent sends a signal to a component of Kubernetes, such as kube-apiserver. A component
// that ends is restarted a second later.
func (c *Cluster) SignalComponent(name string, s syscall.Signal) error {
	pid, err := c.componentPID(name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, s)
}

// componentPID finds a component among the children of the cluster's process 1.
func (c *Cluster) componentPID(name string) (int, error) {
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(c.InitPID()), "task", "*", "children"))
	if err != nil {
		return 0, err
	}
	var children []byte
	for _, task := range tasks {
		more, _ := os.ReadFile(task) // a thread that is gone has none
		children = append(append(children, ' '), more...)
	}
	for pid := range strings.FieldsSeq(string(children)) {
		line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil {
			continue
		}
		args := bytes.Split(line, []byte{0})
		if len(args) > 1 && string(args[1]) == name {
			return strconv.Atoi(pid)
		}
	}
	return 0, fmt.Errorf("cluster %s: %s does not run", c.Name, name)
}
