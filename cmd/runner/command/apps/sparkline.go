package apps

import (
	"math"
	"strings"
)

// sparkWidth is the most characters of a sparkline.
const sparkWidth = 48

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values as bars from zero to the highest. Where there is no value, it has a space.
func sparkline(values []*float64) string {
	var out strings.Builder
	width := min(sparkWidth, len(values))
	columns := make([]float64, width)
	highest := 0.0
	for i := range columns {
		columns[i] = average(values[i*len(values)/width : (i+1)*len(values)/width])
		if columns[i] > highest {
			highest = columns[i]
		}
	}
	for _, value := range columns {
		switch {
		case math.IsNaN(value):
			out.WriteRune(' ')
		case highest == 0:
			out.WriteRune(bars[0])
		default:
			out.WriteRune(bars[max(0, int(value/highest*float64(len(bars)-1)+0.5))])
		}
	}
	return out.String()
}

// average returns the mean of the values that there are, or NaN for none.
func average(values []*float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if v != nil {
			sum, n = sum+*v, n+1
		}
	}
	return sum / float64(n) // 0/0 is NaN
}
