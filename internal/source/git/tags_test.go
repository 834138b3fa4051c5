package git_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

// TestFetch_Semver follows a range of versions over HTTPS and SSH, by tags of both kinds.
func TestFetch_Semver(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	repo := s.Create(t, "shop/deploy.git")
	one := repo.Commit(map[string]string{"a": "1"})
	repo.Git("tag", "v1.9.0")
	ten := repo.Commit(map[string]string{"a": "10"})
	ann := repo.Signed()
	repo.Git("tag", "-s", "-m", "a release", "v1.10.0", ten)
	two := repo.Commit(map[string]string{"a": "2"})
	repo.Git("tag", "v2.0.0-rc.1")
	repo.Git("tag", "latest")
	repo.Git("push", "--quiet", "--tags", "origin")
	ssh := s.StartSSH(t)
	for name, r := range map[string]git.Remote{
		"https": remote(t, s.URL("shop/deploy.git"), secret(s)),
		"ssh": remote(t, ssh.URL("shop/deploy.git"), map[string][]byte{
			"url": []byte(ssh.URL("shop/deploy.git")), "identity": ssh.Identity, "known_hosts": ssh.KnownHosts,
		}),
	} {
		for pattern, want := range map[string]git.Found{
			"<1.10": {Commit: one, Tag: "v1.9.0"}, "1.x": {Commit: ten, Tag: "v1.10.0"}, ">=1.0.0-0": {Commit: two, Tag: "v2.0.0-rc.1"},
		} {
			ref := runnerapi.GitRef{Semver: pattern}
			found, files, err := git.Fetch(t.Context(), r, ref, "", "", git.DefaultLimits)
			require.NoError(t, err, name)
			assert.Equal(t, want, found, name)
			assert.Len(t, files, 1)
			found, files, err = git.Fetch(t.Context(), r, ref, "", want.Commit, git.DefaultLimits)
			require.NoError(t, err, name)
			assert.Equal(t, want, found, "%s: nothing new is not fetched", name)
			assert.Nil(t, files)
			commit, err := git.Checkout(t.Context(), r, ref, "", t.TempDir(), git.CheckoutLimits)
			require.NoError(t, err)
			assert.Equal(t, want.Commit, commit, "a build")
		}
		_, _, err := fetch(t, r, runnerapi.GitRef{Semver: ">=2.0.0"}, "")
		refused(t, err, git.RefMissing, `">=2.0.0"`, "4 tags, 3 of which are versions", "push a tag such as v1.2.3", "pre-release")
		_, err = git.Resolve(t.Context(), r, runnerapi.GitRef{Semver: "newest"}, git.DefaultLimits)
		refused(t, err, git.RefMissing, "is not a range of versions")

		// The signature of the tag that was found counts.
		r.Signers = signedBy(t, ann)
		found, err := git.Resolve(t.Context(), r, runnerapi.GitRef{Semver: "1.x"}, git.DefaultLimits)
		require.NoError(t, err)
		assert.Equal(t, "v1.10.0", found.Tag)
		_, err = git.Resolve(t.Context(), r, runnerapi.GitRef{Semver: "<1.10"}, git.DefaultLimits)
		refused(t, err, git.Reason(signature.Unsigned))
	}
}
