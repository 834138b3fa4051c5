package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// figure is one thing that was measured. With a bound it must not exceed it.
type figure struct {
	ID    string   `json:"id"`
	Title string   `json:"title"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit,omitempty"`
	Bound *float64 `json:"bound,omitempty"`
	Holds *bool    `json:"holds,omitempty"`
}

// results are the figures in the order in which they were measured.
type results struct{ Figures []figure }

func atMost(bound float64) *float64 { return &bound }

func (r *results) add(id, title string, value float64, unit string, bound *float64) {
	f := figure{ID: id, Title: title, Value: value, Unit: unit, Bound: bound}
	if bound != nil {
		f.Holds = ptr.To(value <= *bound)
	}
	r.Figures = append(r.Figures, f)
}

// report prints the table and says whether a bound is broken.
func (b *rig) report(out io.Writer, measured string) (broken bool) {
	fmt.Fprintf(out, "\n%s; took %s\n\n", measured, time.Since(b.start).Round(time.Second))
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tMEASURED\tBOUND\t")
	for _, f := range b.Figures {
		bound, verdict := "", ""
		if f.Bound != nil {
			bound, verdict = "≤ "+quantity(*f.Bound, f.Unit), "holds"
			if !*f.Holds {
				verdict, broken = "BROKEN", true
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Title, quantity(f.Value, f.Unit), bound, verdict)
	}
	_ = table.Flush() // there is nobody left to tell
	fmt.Fprintln(out, "\ndocs/bench.md says what each of them means.")
	return broken
}

func quantity(value float64, unit string) string {
	switch unit {
	case "":
		return fmt.Sprintf("%.3f", value)
	case "ms":
		return fmt.Sprintf("%.0f ms", value)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// machine is what the figures were measured on.
type machine struct {
	CPUs       int     `json:"cpus"`
	MemoryGiB  float64 `json:"memoryGiB"`
	OS         string  `json:"os"`
	Go         string  `json:"go"`
	Kubernetes string  `json:"kubernetes"`
}

func thisMachine() (machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return machine{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	return machine{
		CPUs: runtime.NumCPU(), MemoryGiB: float64(info.Totalram*uint64(info.Unit)>>20) / 1024,
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Kubernetes: cluster.KubernetesVersion,
	}, nil
}

// save writes everything to a file, for whoever compares runs.
func (b *rig) save(file string, size any) error {
	here, err := thisMachine()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{
		"time": b.start.UTC().Truncate(time.Second), "seconds": int(time.Since(b.start).Seconds()),
		"size": size, "machine": here, "figures": b.Figures,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // for everybody to read
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
