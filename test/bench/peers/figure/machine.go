package figure

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Machine is what the figures were measured on.
type Machine struct {
	CPUs      int     `json:"cpus"`
	MemoryGiB float64 `json:"memoryGiB"`
	OS        string  `json:"os"`
	Go        string  `json:"go"`
}

// ThisMachine is the one that the benchmark runs on.
func ThisMachine() (Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	return Machine{
		CPUs: runtime.NumCPU(), MemoryGiB: float64(info.Totalram*uint64(info.Unit)>>20) / 1024,
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}, nil
}
