package git

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// tagLines returns the lines of tags, in a form that shows which tag each is.
func tagLines(names ...string) (lines string) {
	for _, name := range names {
		lines += pkt(hash + " " + tags + name)
	}
	return lines
}

func TestNewest_OfRange(t *testing.T) {
	first := pkt(hash + " HEAD\x00shallow")
	for name, c := range map[string]struct {
		pattern    string
		advertised []string
		want       string
	}{
		"the newest, not the last":          {">=1.2.0 <2", []string{"v1.10.0", "v1.2.0", "v1.9.0", "v2.0.0"}, "v1.10.0"},
		"without v":                         {"1.x", []string{"1.0.0", "1.0.1"}, "1.0.1"},
		"no pre-release":                    {">=1.0.0", []string{"v1.0.0", "v1.1.0-rc.1"}, "v1.0.0"},
		"a pre-release that is named":       {">=1.0.0-0", []string{"v1.0.0", "v1.1.0-rc.1"}, "v1.1.0-rc.1"},
		"a release before its candidates":   {">=1.0.0-0", []string{"v1.1.0-rc.10", "v1.1.0", "v1.1.0-rc.2"}, "v1.1.0"},
		"equal versions":                    {"*", []string{"v1.2.0", "1.2.0"}, "v1.2.0"},
		"equal versions, in another order":  {"*", []string{"1.2.0", "v1.2.0"}, "v1.2.0"},
		"equal but for build metadata":      {"*", []string{"1.2.0+2", "1.2.0+1"}, "1.2.0+2"},
		"no dates and no parts of versions": {"*", []string{"20261130", "v3", "v2.1", "nightly", "release/v4.0.0", "v1.0.0"}, "v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := only(runnerapi.GitRef{Semver: c.pattern})
			require.NoError(t, err)
			peeledLine := pkt(hash + " " + tags + c.want + "^{}")
			all := strings.Replace(tagLines(c.advertised...), tagLines(c.want), tagLines(c.want)+peeledLine, 1)
			shallow := pkt("shallow " + hash)
			kept, err := io.ReadAll(f.of(strings.NewReader(first + pkt(hash+" refs/heads/main") + all + shallow + "0000")))
			require.NoError(t, err)
			assert.Equal(t, first+tagLines(c.want)+peeledLine+shallow+"0000", string(kept))
			ref, err := f.found()
			require.NoError(t, err)
			assert.Equal(t, runnerapi.GitRef{Tag: c.want}, ref)
		})
	}
}

// TestNewest_First has a repository without a default branch: the first ref, which has the
// capabilities, is a tag.
func TestNewest_First(t *testing.T) {
	first := pkt(hash + " refs/tags/v1.0.0\x00shallow")
	for want, rest := range map[string]string{"v1.0.0": tagLines("v1.0.0^{}", "v0.9.0"), "v1.1.0": tagLines("v1.1.0")} {
		f, err := only(runnerapi.GitRef{Semver: "*"})
		require.NoError(t, err)
		refs := packp.NewAdvRefs()
		require.NoError(t, refs.Decode(f.of(strings.NewReader(first+rest+"0000"))))
		ref, err := f.found()
		require.NoError(t, err)
		assert.Equal(t, want, ref.Tag)
		assert.Contains(t, refs.References, tags+want)
		assert.Equal(t, want == "v1.0.0", len(refs.Peeled) == 1)
	}
}

// FuzzNewest expects that no more is kept than was advertised, and the tag that was found.
func FuzzNewest(f *testing.F) {
	f.Add(pkt(hash+" HEAD\x00shallow")+tagLines("v1.0.0", "v1.0.0^{}", "v1.2.0")+"0000", "1.x")
	f.Add("001e# service=git-upload-pack\n0000"+tagLines("v1.0.0", "1.0.0")+"0000", ">=1.0.0-0")
	f.Add("0004", "*")
	f.Fuzz(func(t *testing.T, advertised, pattern string) {
		filter, err := only(runnerapi.GitRef{Semver: pattern})
		if err != nil || pattern == "" {
			return
		}
		kept, _ := io.ReadAll(filter.of(strings.NewReader(advertised)))
		if len(kept) > len(advertised) {
			t.Fatalf("kept more than was advertised: %q", kept)
		}
		kept = append(kept, filter.newest.take()...) // the advertisement may have ended too early
		if ref, err := filter.found(); err == nil && !bytes.Contains(kept, []byte(tags+ref.Tag)) {
			t.Fatalf("tag %q was found and not kept: %q", ref.Tag, kept)
		}
	})
}
