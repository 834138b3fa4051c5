package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/cgroup"
)

// state is what is noted down of a cluster before it is made, so that every
// trace of it can be found again.
type state struct {
	Name             string       `json:"name"`
	ControlPlaneOnly bool         `json:"controlPlaneOnly"`
	SimulatedNodes   int          `json:"simulatedNodes,omitempty"`
	Network          network      `json:"network"`
	Cgroup           cgroup.Group `json:"cgroup"`
	Init             process      `json:"init"`
	// Hyperkube is kept so that kubectl works when the sources have moved on.
	Hyperkube string    `json:"hyperkube"`
	Started   time.Time `json:"started"`
	// Ready is set when Up has finished.
	Ready bool `json:"ready"`
}

// process is a process ID that a later process with the same ID is not taken
// for.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

const stateFile = "state.json"

func loadState(dir string) (state, error) {
	var s state
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

// save replaces the file in one step: it is read while it is written.
func (s state) save(dir string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+stateFile)
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return os.Rename(tmp, filepath.Join(dir, stateFile))
}

func processOf(pid int) (process, error) {
	start, _, err := procStat(pid)
	if err != nil {
		return process{}, fmt.Errorf("process %d ended at once: %w", pid, err)
	}
	return process{PID: pid, Start: start}, nil
}

// alive returns false for a zombie too, because its parent may never reap it. But a zombie that
// still has threads is not dead: its first thread ended before the others, the last of which takes
// the whole namespace down.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	start, status, err := procStat(p.PID)
	if err != nil || start != p.Start || status == "X" {
		return false
	}
	if status != "Z" {
		return true
	}
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(p.PID) + "/task")
	return err == nil && len(threads) > 1
}

// procStat reads when a process started, in ticks since boot, and its status.
func procStat(pid int) (start, status string, err error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", "", err
	}
	// The name, in parentheses, may hold anything; what follows it is regular.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("unexpected content of /proc/%d/stat", pid)
	}
	return fields[19], fields[0], nil
}

// cacheDir returns where everything lives that this package makes.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache: %w (set HOME or XDG_CACHE_HOME)", err)
	}
	return filepath.Join(base, "pipeops-test"), nil
}

func runDir() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "clusters"), nil
}

// clusterNames lists the clusters that have left a directory, running or not.
func clusterNames() ([]string, error) {
	dir, err := runDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}
