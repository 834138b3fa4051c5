package flags

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrefixes_Set(t *testing.T) {
	var list []netip.Prefix
	p := &prefixes{&list}
	require.NoError(t, p.Set("10.20.3.4/16, fd00::/8"))
	require.NoError(t, p.Set("192.0.2.0/24"))
	assert.Equal(t, "10.20.0.0/16,fd00::/8,192.0.2.0/24", p.String())
	assert.ErrorContains(t, p.Set("10.20.3"), "10.0.0.0/8")
	assert.Empty(t, (&prefixes{}).String())
}
