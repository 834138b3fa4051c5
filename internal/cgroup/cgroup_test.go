package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
)

// tree is a file system: file to content.
type tree map[string]string

func (f tree) write(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range f {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return root
}

const (
	mountOfV2   = "30 22 0:27 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
	mountsOfV1  = "30 22 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n34 30 0:31 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
	unlimitedV1 = "9223372036854771712\n"
)

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		files tree
		want  []cgroup.Memory
	}{
		"version 2, in a container": {
			tree{
				"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountOfV2,
				"sys/fs/cgroup/memory.max": "167772160\n", "sys/fs/cgroup/memory.current": "100000\n",
				"sys/fs/cgroup/memory.stat":   "anon 50000\nfile 30000\ninactive_file 20000\nactive_file 10000\n",
				"sys/fs/cgroup/memory.events": "max 9\noom 3\noom_kill 2\n",
			},
			[]cgroup.Memory{{Limit: 167772160, Used: 70000, Kills: 2}},
		},
		"version 2, and the groups above": {
			tree{
				"proc/self/cgroup": "0::/system.slice/agent.service\n", "proc/self/mountinfo": mountOfV2,
				"sys/fs/cgroup/system.slice/agent.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/agent.service/memory.current": "7\n",
				"sys/fs/cgroup/system.slice/memory.max": "1000\n", "sys/fs/cgroup/system.slice/memory.current": "10\n",
			},
			[]cgroup.Memory{{Limit: 1000, Used: 10}},
		},
		"version 1": {
			tree{
				"proc/self/cgroup": "5:cpu,cpuacct:/pod\n4:memory:/pod/c\n0::/\n", "proc/self/mountinfo": mountsOfV1,
				"sys/fs/cgroup/memory/memory.limit_in_bytes": unlimitedV1, "sys/fs/cgroup/memory/memory.usage_in_bytes": "9\n",
				"sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "5000\n", "sys/fs/cgroup/memory/pod/memory.usage_in_bytes": "400\n",
				"sys/fs/cgroup/memory/pod/c/memory.limit_in_bytes": "4000\n", "sys/fs/cgroup/memory/pod/c/memory.usage_in_bytes": "300\n",
				"sys/fs/cgroup/memory/pod/c/memory.stat":        "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n",
				"sys/fs/cgroup/memory/pod/c/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
			},
			[]cgroup.Memory{{Limit: 4000, Used: 250, Kills: 1}, {Limit: 5000, Used: 400}},
		},
		"version 1, in a container with the machine's path": {
			tree{
				"proc/self/cgroup":                           "4:memory:/kubepods/pod/c\n",
				"proc/self/mountinfo":                        "34 30 0:31 /kubepods/pod/c /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "300\n",
			},
			[]cgroup.Memory{{Limit: 4000, Used: 300}},
		},
		"a path above what is mounted": {
			tree{
				"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": "30 22 0:27 /own /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
				"sys/fs/cgroup/memory.max": "4000\n", "sys/fs/cgroup/memory.current": "300\n",
			},
			[]cgroup.Memory{{Limit: 4000, Used: 300}},
		},
		"no limit":            {tree{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountOfV2, "sys/fs/cgroup/memory.max": "max\n"}, nil},
		"no groups":           {tree{"proc/self/cgroup": "", "proc/self/mountinfo": ""}, nil},
		"no proc":             {nil, nil},
		"lines of other form": {tree{"proc/self/cgroup": "x\n4:memory\n0::/\n", "proc/self/mountinfo": "x\n - \n"}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, cgroup.Limits(c.files.write(t), cgroup.Self)) })
	}
}

func TestTightest(t *testing.T) {
	root := tree{
		"proc/self/cgroup": "0::/pod/c\n", "proc/self/mountinfo": mountOfV2,
		"sys/fs/cgroup/pod/c/memory.max": "4000\n", "sys/fs/cgroup/pod/c/memory.current": "300\n",
		"sys/fs/cgroup/pod/memory.max": "5000\n", "sys/fs/cgroup/pod/memory.current": "4900\n",
	}.write(t)
	m, limited := cgroup.Tightest(root, cgroup.Self)
	assert.True(t, limited)
	assert.Equal(t, cgroup.Memory{Limit: 5000, Used: 4900}, m)
	_, limited = cgroup.Tightest(t.TempDir(), cgroup.Self)
	assert.False(t, limited)
}
