package render_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

func TestContentDigest(t *testing.T) {
	a, b := [2]string{"x/Chart.yaml", "name: x"}, [2]string{"x/values.yaml", "a: 1"}
	pack := func(level int, at time.Time, files ...[2]string) []byte {
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, level)
		require.NoError(t, err)
		w := tar.NewWriter(z)
		for _, f := range files {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), ModTime: at}))
			_, err := w.Write([]byte(f[1]))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, z.Close())
		return out.Bytes()
	}
	of := func(packed []byte) string {
		t.Helper()
		digest, err := render.ContentDigest(packed)
		require.NoError(t, err)
		return digest
	}
	want := of(pack(gzip.BestSpeed, time.Unix(1, 0), a, b))
	assert.Equal(t, want, of(pack(gzip.BestCompression, time.Unix(2, 0), b, a)), "a mirror may pack the chart again")
	assert.NotEqual(t, want, of(pack(gzip.BestSpeed, time.Unix(1, 0), a, [2]string{b[0], "a: 2"})))
	assert.NotEqual(t, want, of(pack(gzip.BestSpeed, time.Unix(1, 0), a)))
	_, err := render.ContentDigest(pack(gzip.BestSpeed, time.Unix(1, 0), a, b, b))
	require.EqualError(t, err, "the file values.yaml is in it twice")
	_, err = render.ContentDigest([]byte("<html>Sign in</html>"))
	require.Error(t, err)
}
