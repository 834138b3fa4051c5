package sizing

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A history is a histogram of CPU and one of memory for each of the last days. Its size grows with
// the spread of the measurements, not with their number, and it forgets a day at a time.
const (
	keptDays   = 7
	spareDays  = 2                        // of an App that did not turn right-sizing on: today and yesterday
	growth     = 1.05                     // of a bucket over the one below: the error of a percentile
	maxBuckets = 400                      // up to a million cores, a tebibyte and more
	maxHistory = keptDays * 2 * 16 * 1024 // bytes of a written history
	cpuUnit    = 1                        // smallest bucket: a thousandth of a core
	memoryUnit = 1 << 20                  // smallest bucket: a mebibyte
	dayLength  = 24 * time.Hour           // of UTC
	maxCount   = int64(math.MaxInt32)     // of one bucket
	maxFigure  = int64(1) << 52           // exact in a float64
)

// histogram counts values in buckets that grow by a fixed factor.
type histogram struct {
	peak    int64
	buckets map[int]int64
}

func (h *histogram) add(value, unit int64) {
	value = min(max(value, 0), maxFigure)
	h.peak = max(h.peak, value)
	if h.buckets == nil {
		h.buckets = map[int]int64{}
	}
	h.buckets[bucketOf(value, unit)]++
}

func bucketOf(value, unit int64) int {
	if value <= unit {
		return 0
	}
	return min(int(math.Ceil(math.Log(float64(value)/float64(unit))/math.Log(growth))), maxBuckets-1)
}

// upper returns the highest value that a bucket counts.
func upper(bucket int, unit int64) int64 {
	return int64(math.Ceil(float64(unit) * math.Pow(growth, float64(bucket))))
}

func (h *histogram) merge(other histogram) {
	h.peak = max(h.peak, other.peak)
	if h.buckets == nil {
		h.buckets = map[int]int64{}
	}
	for b, n := range other.buckets {
		h.buckets[b] += n
	}
}

func (h *histogram) count() int64 {
	var n int64
	for _, c := range h.buckets {
		n += c
	}
	return n
}

// percentile returns the value that p of 100 measurements stay under.
func (h *histogram) percentile(p, unit int64) int64 {
	left := h.count() * p
	for _, b := range slices.Sorted(maps.Keys(h.buckets)) {
		if left -= h.buckets[b] * 100; left <= 0 {
			return min(upper(b, unit), h.peak)
		}
	}
	return h.peak
}

// day is the measurements of one day.
type day struct {
	number      int64 // days since 1970
	cpu, memory histogram
}

// history holds the last days of a container, oldest first.
type history []day

func (h *history) add(at time.Time, cpu, memory int64) {
	number := at.Unix() / int64(dayLength/time.Second)
	if len(*h) == 0 || (*h)[len(*h)-1].number < number {
		*h = append(*h, day{number: number})
	}
	today := &(*h)[len(*h)-1]
	today.cpu.add(cpu, cpuUnit)
	today.memory.add(memory, memoryUnit)
	h.keep(keptDays)
}

// keep drops all but the last days, counted from the newest.
func (h *history) keep(days int64) {
	newest := (*h)[len(*h)-1].number
	*h = slices.DeleteFunc(*h, func(d day) bool { return d.number <= newest-days })
}

// total returns the sum of all days.
func (h history) total() day {
	var all day
	for _, d := range h {
		all.cpu.merge(d.cpu)
		all.memory.merge(d.memory)
	}
	return all
}

// since returns when the oldest day began.
func (h history) since() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return time.Unix(h[0].number*int64(dayLength/time.Second), 0).UTC()
}

// String returns the stored form of a history, DAY;PEAK:BUCKETxCOUNT,…;PEAK:BUCKETxCOUNT,…. A
// day has the CPU and the memory, and days are separated by "|".
func (h history) String() string {
	days := make([]string, 0, len(h))
	for _, d := range h {
		days = append(days, fmt.Sprintf("%d;%s;%s", d.number, d.cpu, d.memory))
	}
	return strings.Join(days, "|")
}

// String returns the histogram's part of that form.
func (h histogram) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", h.peak)
	for i, bucket := range slices.Sorted(maps.Keys(h.buckets)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%dx%d", bucket, h.buckets[bucket])
	}
	return b.String()
}

// parseHistory decodes what String wrote. Any client may have edited it. A malformed text counts as
// no history, and measuring starts again.
func parseHistory(s string) (history, bool) {
	if s == "" || len(s) > maxHistory || strings.Count(s, "|") >= keptDays {
		return nil, false
	}
	var h history
	for part := range strings.SplitSeq(s, "|") {
		d, ok := parseDay(part)
		if !ok || len(h) > 0 && h[len(h)-1].number >= d.number {
			return nil, false
		}
		h = append(h, d)
	}
	return h, true
}

func parseDay(s string) (day, bool) {
	number, rest, _ := strings.Cut(s, ";")
	cpu, memory, ok := strings.Cut(rest, ";")
	n, okDay := parseFigure(number, maxCount)
	c, okCPU := parseHistogram(cpu)
	m, okMemory := parseHistogram(memory)
	return day{number: n, cpu: c, memory: m}, ok && okDay && okCPU && okMemory
}

func parseHistogram(s string) (histogram, bool) {
	peak, buckets, ok := strings.Cut(s, ":")
	h := histogram{buckets: map[int]int64{}}
	var fine bool
	if h.peak, fine = parseFigure(peak, maxFigure); !ok || !fine || strings.Count(buckets, ",") >= maxBuckets {
		return h, false
	}
	for pair := range strings.SplitSeq(buckets, ",") {
		bucket, count, _ := strings.Cut(pair, "x")
		b, okBucket := parseFigure(bucket, maxBuckets-1)
		n, okCount := parseFigure(count, maxCount)
		if _, twice := h.buckets[int(b)]; !okBucket || !okCount || twice || n == 0 {
			return h, false
		}
		h.buckets[int(b)] = n
	}
	return h, true
}

func parseFigure(s string, most int64) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && n <= most && strconv.FormatInt(n, 10) == s
}
