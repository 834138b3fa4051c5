package sizing

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var monday = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func TestHistory_PercentileAccuracy(t *testing.T) {
	var h histogram
	for i := range int64(1000) {
		h.add(i+1, cpuUnit)
	}
	assert.EqualValues(t, 1000, h.peak)
	assert.EqualValues(t, 1000, h.count())
	assert.InEpsilon(t, 950, h.percentile(95, cpuUnit), growth-1)
	assert.GreaterOrEqual(t, h.percentile(95, cpuUnit), int64(950), "never under the truth")
	assert.EqualValues(t, 1000, h.percentile(100, cpuUnit), "never over the peak")
	var none histogram
	assert.Zero(t, none.percentile(95, cpuUnit))
}

func TestHistory_ForgetsByDay(t *testing.T) {
	var h history
	h.add(monday, 900, 1<<30)
	for i := range keptDays - 1 {
		h.add(monday.AddDate(0, 0, i+1), 10, 10<<20)
	}
	assert.EqualValues(t, 900, h.total().cpu.peak)
	assert.Equal(t, monday.Truncate(dayLength), h.since())
	h.add(monday.AddDate(0, 0, keptDays), 10, 10<<20)
	assert.EqualValues(t, 10, h.total().cpu.peak, "the worst day is a week ago")
	assert.Len(t, h, keptDays)
}

func TestHistory_Bounded(t *testing.T) {
	var h history
	for i := range 7 * 24 * 60 {
		h.add(monday.Add(time.Duration(i)*time.Minute), rand.Int64N(4000), rand.Int64N(8<<30))
	}
	text := h.String()
	assert.Less(t, len(text), 16<<10, "a week of figures all over the place")
	again, ok := parseHistory(text)
	require.True(t, ok)
	before, after := h.total(), again.total()
	assert.Equal(t, before.cpu.percentile(95, cpuUnit), after.cpu.percentile(95, cpuUnit))
	assert.Equal(t, text, again.String())
}

func FuzzParseHistory(f *testing.F) {
	var h history
	h.add(monday, 17, 40<<20)
	h.add(monday.AddDate(0, 0, 1), 0, 0)
	for _, seed := range []string{h.String(), "", "|", "1;1:1x1;1:1x1", "1;1:1x1;1:1x1|1;1:1x1;1:1x1", "9;9:9;9:", strings.Repeat("1;", 99)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, ok := parseHistory(s)
		if !ok {
			return
		}
		if h.String() != s && len(h) == strings.Count(s, "|")+1 { // the order of buckets is free
			again, ok := parseHistory(h.String())
			if !ok || again.String() != h.String() {
				t.Fatalf("%q is not read back", h.String())
			}
		}
		h.add(monday, 1, 1)
		if all := h.total(); all.cpu.percentile(95, cpuUnit) > all.cpu.peak {
			t.Fatal("a percentile over the peak")
		}
	})
}

func measured(cpu, memory int64) history {
	var h history
	for range 100 {
		h.add(monday, cpu, memory)
	}
	return h
}

func TestRecommend(t *testing.T) {
	sizing := &runnerapi.RightSizing{Mode: runnerapi.SizingApply}
	bounds := func(minCPU, maxCPU, minMemory, maxMemory string) *runnerapi.RightSizing {
		return &runnerapi.RightSizing{
			CPU: runnerapi.CPUBounds{Min: minCPU, Max: maxCPU}, Memory: runnerapi.MemoryBounds{Min: minMemory, Max: maxMemory},
		}
	}
	for name, c := range map[string]struct {
		cpu, memory           int64
		spec                  runnerapi.AppSpec
		wantCPU, wantMemory   int64
		boundCPU, boundMemory string
	}{
		"the figures and their margins": {200, 100 << 20, runnerapi.AppSpec{RightSizing: sizing}, 230, 120 << 20, "", ""},
		"the floor":                     {1, 1 << 20, runnerapi.AppSpec{RightSizing: sizing}, cpuFloor, memoryFloor, "floor", "floor"},
		"min": {
			1, 1 << 20, runnerapi.AppSpec{RightSizing: bounds("100m", "", "256Mi", "")}, 100, 256 << 20, "min", "min",
		},
		"max": {
			900, 900 << 20, runnerapi.AppSpec{RightSizing: bounds("", "500m", "", "512Mi")}, 500, 512 << 20, "max", "max",
		},
		"the limit": {
			900, 900 << 20, runnerapi.AppSpec{RightSizing: bounds("", "2", "", "2Gi"), Resources: runnerapi.Resources{
				Limits: runnerapi.ResourceAmounts{CPU: "1", Memory: "1Gi"},
			}}, 1000, 1 << 30, "limit", "limit",
		},
		"whole mebibytes": {200, 100<<20 + 1, runnerapi.AppSpec{RightSizing: sizing}, 230, 121 << 20, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &v1alpha1.App{Spec: c.spec}
			a.Name = "web"
			r := recommend(a, "web", measured(c.cpu, c.memory))
			assert.Equal(t, c.wantCPU, r.CPU.Request)
			assert.Equal(t, c.wantMemory, r.Memory.Request)
			assert.Equal(t, c.boundCPU, r.CPU.Bound)
			assert.Equal(t, c.boundMemory, r.Memory.Bound)
			assert.EqualValues(t, 100, r.Samples)
		})
	}
}

func TestRecommend_IgnoresSmallChanges(t *testing.T) {
	have := v1alpha1.AppliedSizing{CPU: 100, Memory: 100 << 20}
	assert.False(t, differs(have, v1alpha1.AppliedSizing{CPU: 109, Memory: 91 << 20}))
	assert.True(t, differs(have, v1alpha1.AppliedSizing{CPU: 110, Memory: 100 << 20}))
	assert.True(t, differs(have, v1alpha1.AppliedSizing{CPU: 100, Memory: 90 << 20}))
}

func TestHistory_RoundTrip(t *testing.T) {
	var h history
	for i := range 5 {
		h.add(monday.AddDate(0, 0, i), 10, 10<<20)
	}
	h.keep(spareDays)
	assert.Len(t, h, spareDays)
	assert.Equal(t, monday.AddDate(0, 0, 3).Truncate(dayLength), h.since())
}
