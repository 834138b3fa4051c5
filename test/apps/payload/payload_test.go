package payload

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPayload_RecognizesLines(t *testing.T) {
	for _, size := range []int{0, 1, 9, 80, 1024} {
		for _, n := range []int{0, 7, 123_456_789} {
			line := Line(n, size)
			require.Len(t, line, max(size, len(Line(n, 0))))
			got, err := Number(line, size)
			require.NoError(t, err)
			require.Equal(t, n, got)
		}
	}
	for _, changed := range []string{"", "x", Line(7, 80)[:79], Line(7, 80) + "x", "8" + Line(7, 80)[1:], "007"} {
		_, err := Number(changed, 80)
		require.Error(t, err, changed)
	}
}

func TestPayload_SameBytes(t *testing.T) {
	first, err := io.ReadAll(Bytes(1000))
	require.NoError(t, err)
	again, err := io.ReadAll(Bytes(1000))
	require.NoError(t, err)
	require.Len(t, first, 1000)
	require.Equal(t, first, again)
}
