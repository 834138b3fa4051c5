package cage

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func TestSeccomp_AllowsListed(t *testing.T) {
	const allow, eperm, enosys = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM), unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)
	const pid, x32, goThread = 7, 0x40000000, unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	for _, arch := range archs {
		vm, err := bpf.NewVM(filter(arch, pid))
		require.NoError(t, err)
		for name, c := range map[string]struct {
			arch, call, arg uint32
			want            int
		}{
			"read":                      {arch, unix.SYS_READ, 0, allow},
			"the last that is allowed":  {arch, allowed[len(allowed)-1], 0, allow},
			"a thread":                  {arch, unix.SYS_CLONE, goThread, allow},
			"a process":                 {arch, unix.SYS_CLONE, uint32(unix.SIGCHLD), eperm},
			"a process as vfork does":   {arch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_VFORK, eperm},
			"a thread in a namespace":   {arch, unix.SYS_CLONE, goThread | unix.CLONE_NEWUSER, eperm},
			"clone3":                    {arch, unix.SYS_CLONE3, 0, enosys},
			"a signal to itself":        {arch, unix.SYS_TGKILL, pid, allow},
			"a signal to another":       {arch, unix.SYS_TGKILL, 1, eperm},
			"kill itself":               {arch, unix.SYS_KILL, pid, allow},
			"kill all":                  {arch, unix.SYS_KILL, ^uint32(0), eperm},
			"a name of memory":          {arch, unix.SYS_PRCTL, unix.PR_SET_VMA, allow},
			"another use of prctl":      {arch, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, eperm},
			"open":                      {arch, unix.SYS_OPENAT, 0, eperm},
			"x32's numbers":             {arch, x32 | unix.SYS_READ, 0, eperm},
			"a call that is not known":  {arch, 100_000, 0, eperm},
			"another machine's numbers": {unix.AUDIT_ARCH_I386, unix.SYS_READ, 0, eperm},
		} {
			data := make([]byte, 64) // struct seccomp_data, in the byte order of the interpreter
			binary.BigEndian.PutUint32(data[offsetCall:], c.call)
			binary.BigEndian.PutUint32(data[offsetArch:], c.arch)
			binary.BigEndian.PutUint32(data[offsetArg:], c.arg)
			got, err := vm.Run(data)
			require.NoError(t, err)
			assert.Equal(t, c.want, got, name)
		}
	}
}
