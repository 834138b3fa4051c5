package traffic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeShare: what others have written is figures within bounds, or an error.
func FuzzDecodeShare(f *testing.F) {
	at := time.Unix(1_700_000_000, 0)
	c := New(func() time.Time { return at })
	c.Host(Owner{App{"production", "web"}, "shop.example.com"}).Request(at, 503, "busy", time.Second, 3, 4)
	good, err := encodeShare(c.Values())
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		hosts, err := decodeShare(packed)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(hosts), MaxHosts)
		Report(hosts, App{"production", "web"}, Hour, at)
		again, err := encodeShare(hosts)
		require.NoError(t, err)
		require.LessOrEqual(t, len(again), MaxShare)
	})
}

// TestDecodeShare_Refuses what no agent writes.
func TestDecodeShare_Refuses(t *testing.T) {
	value := func(change func(*Value)) []HostValues {
		v := Value{Number: 1}
		change(&v)
		return []HostValues{{Owner: Owner{App{"a", "b"}, "c"}, Minutes: []Value{v}}}
	}
	for name, hosts := range map[string][]HostValues{
		"a huge number":  value(func(v *Value) { v.Sent = 1 << 60 }),
		"a negative one": value(func(v *Value) { v.Sent = -1 }),
		"too many steps": {{Minutes: make([]Value, Hour.Steps+1)}},
		"too many hosts": make([]HostValues, MaxHosts+1),
	} {
		t.Run(name, func(t *testing.T) {
			packed, err := pack(hosts)
			require.NoError(t, err)
			_, err = decodeShare(packed)
			require.Error(t, err)
		})
	}
	_, err := decodeShare(make([]byte, MaxShare+1))
	require.ErrorContains(t, err, "more than")
}
