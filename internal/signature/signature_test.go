package signature_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
)

// repository is one of the real Git, whose keys ssh-keygen has made.
type repository struct {
	t    *testing.T
	dir  string
	home string // GnuPG's
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, dir: t.TempDir()}
	r.git("init", "--quiet", "--initial-branch=main", ".")
	r.git("config", "gpg.format", "ssh")
	return r
}

// run runs a program, and returns its output and whether it succeeded.
func (r *repository) run(in, name string, args ...string) (string, bool) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GNUPGHOME="+r.home,
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func (r *repository) must(in, name string, args ...string) string {
	r.t.Helper()
	out, ok := r.run(in, name, args...)
	require.True(r.t, ok, "%s %s: %s", name, strings.Join(args, " "), out)
	return out
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	return strings.TrimSuffix(r.must("", "git", args...), "\n")
}

// sshKey makes a key, and returns its public half.
func (r *repository) sshKey(name string, args ...string) string {
	r.t.Helper()
	r.must("", "ssh-keygen", append([]string{"-q", "-N", "", "-C", name + "@example.com", "-f", name}, args...)...)
	text, err := os.ReadFile(filepath.Join(r.dir, name+".pub"))
	require.NoError(r.t, err)
	return strings.TrimSpace(string(text))
}

// commit makes a commit, signed by a key of ssh-keygen unless there is none.
func (r *repository) commit(key string) string {
	r.t.Helper()
	args := []string{"commit", "--quiet", "--allow-empty", "--message", "a commit\n\nwith a body"}
	if key != "" {
		args = append([]string{"-c", "user.signingkey=" + filepath.Join(r.dir, key)}, append(args, "-S")...)
	}
	r.git(args...)
	return r.git("rev-parse", "HEAD")
}

func (r *repository) tag(name, key, of string) {
	r.t.Helper()
	args := []string{"tag", "--message", "a release", name, of, "--annotate"}
	if key != "" {
		args = append([]string{"-c", "user.signingkey=" + filepath.Join(r.dir, key)}, append(args[:len(args)-1], "--sign")...)
	}
	r.git(args...)
}

func (r *repository) raw(kind, of string) []byte {
	r.t.Helper()
	return []byte(r.must("", "git", "cat-file", kind, of))
}

// write stores a commit of these bytes, as an attacker who may push does.
func (r *repository) write(kind string, raw []byte) string {
	r.t.Helper()
	return strings.TrimSpace(r.must(string(raw), "git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"))
}

// read returns a commit as a fetch of a ref gives it.
func (r *repository) read(ref string) signature.Commit {
	r.t.Helper()
	c := signature.Commit{Hash: r.git("rev-parse", ref+"^{commit}")}
	c.Raw = r.raw("commit", c.Hash)
	if out, ok := r.run("", "git", "cat-file", "tag", "refs/tags/"+ref); ok {
		c.Tag, c.TagName = []byte(out), ref
	}
	return c
}

// gitVerifies reports whether Git itself accepts the commit, or the tag.
func (r *repository) gitVerifies(c signature.Commit, keys ...string) bool {
	r.t.Helper()
	lines := ""
	for _, key := range keys {
		lines += "* " + key + "\n"
	}
	file := filepath.Join(r.dir, "allowed")
	require.NoError(r.t, os.WriteFile(file, []byte(lines), 0o600))
	_, commit := r.run("", "git", "-c", "gpg.ssh.allowedSignersFile="+file, "verify-commit", c.Hash)
	tag := false
	if c.Tag != nil {
		_, tag = r.run("", "git", "-c", "gpg.ssh.allowedSignersFile="+file, "verify-tag", c.TagName)
	}
	return commit || tag
}

func signers(t *testing.T, keys ...string) signature.Signers {
	t.Helper()
	s := signature.Signers{Source: "signers in a test"}
	for _, text := range keys {
		key, err := signature.ReadKey(text)
		require.NoError(t, err, text)
		s.Keys = append(s.Keys, key)
	}
	return s
}

// reason returns why a commit is refused; empty if it is accepted.
func reason(s signature.Signers, c signature.Commit) signature.Reason {
	if e := s.Verify(c, time.Now()); e != nil {
		return e.Reason
	}
	return ""
}

// TestVerify_AsGitDoes compares with git verify-commit and verify-tag.
func TestVerify_AsGitDoes(t *testing.T) {
	r := newRepository(t)
	ann, eve := r.sshKey("ann", "-t", "ed25519"), r.sshKey("eve", "-t", "ed25519")
	ecdsa, rsa := r.sshKey("ecdsa", "-t", "ecdsa", "-b", "384"), r.sshKey("rsa", "-t", "rsa", "-b", "2048")
	unsigned, signed, others := r.commit(""), r.commit("ann"), r.commit("eve")
	byECDSA, byRSA := r.commit("ecdsa"), r.commit("rsa")
	r.tag("plain", "", unsigned)
	r.tag("signed", "ann", unsigned)
	r.tag("both", "ann", signed)
	r.tag("eves", "eve", unsigned)
	r.tag("eves-of-signed", "eve", signed)
	r.git("tag", "light", signed)
	child := r.commit("") // its parents are signed

	altered := func(of, old, now string) string {
		raw := r.raw("commit", of)
		require.Contains(t, string(raw), old)
		return r.write("commit", bytes.Replace(raw, []byte(old), []byte(now), 1))
	}
	for name, c := range map[string]struct {
		ref  string
		keys []string
		want signature.Reason
	}{
		"signed":                      {signed, []string{ann}, ""},
		"one of several":              {signed, []string{eve, ecdsa, rsa, ann}, ""},
		"allowed_signers":             {signed, []string{`ann@example.com namespaces="git" ` + ann}, ""},
		"ECDSA":                       {byECDSA, []string{ecdsa}, ""},
		"RSA":                         {byRSA, []string{rsa}, ""},
		"unsigned":                    {unsigned, []string{ann}, signature.Unsigned},
		"parent signed":               {child, []string{ann, rsa}, signature.Unsigned},
		"not listed":                  {others, []string{ann}, signature.NotListed},
		"message altered":             {altered(signed, "with a body", "with another body"), []string{ann}, signature.Mismatch},
		"tree altered":                {altered(signed, "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904", "tree "+strings.Repeat("1", 40)), []string{ann}, signature.Mismatch},
		"another commit's signature":  {r.write("commit", graft(r.raw("commit", others), r.raw("commit", signed))), []string{ann}, signature.Mismatch},
		"signature in the message":    {r.write("commit", append(r.raw("commit", unsigned), r.raw("commit", signed)...)), []string{ann}, signature.Unsigned},
		"tag unsigned":                {"plain", []string{ann}, signature.Unsigned},
		"tag signed":                  {"signed", []string{ann}, ""},
		"tag and commit signed":       {"both", []string{ann}, ""},
		"tag not listed":              {"eves", []string{ann}, signature.NotListed},
		"commit signed, tag by other": {"eves-of-signed", []string{ann}, ""},
		"lightweight tag":             {"light", []string{ann}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			commit := r.read(c.ref)
			assert.Equal(t, c.want, reason(signers(t, c.keys...), commit))
			plain := make([]string, len(c.keys))
			for i, key := range c.keys {
				plain[i] = strings.TrimPrefix(key, `ann@example.com namespaces="git" `)
			}
			assert.Equal(t, c.want == "", r.gitVerifies(commit, plain...), "Git's word")
		})
	}
}

// graft returns a commit with the signature of another one.
func graft(commit, from []byte) []byte {
	cut := func(raw []byte) (before, sig, after string) {
		at := strings.Index(string(raw), "gpgsig ")
		end := at + strings.Index(string(raw[at:]), "-----END SSH SIGNATURE-----\n") + len("-----END SSH SIGNATURE-----\n")
		return string(raw[:at]), string(raw[at:end]), string(raw[end:])
	}
	before, _, after := cut(commit)
	_, sig, _ := cut(from)
	return []byte(before + sig + after)
}

// TestVerify_RefusesForms has objects that Git would read in one way or another.
func TestVerify_RefusesForms(t *testing.T) {
	r := newRepository(t)
	ann := r.sshKey("ann", "-t", "ed25519")
	signed := r.commit("ann")
	raw := string(r.raw("commit", signed))
	at := strings.Index(raw, "gpgsig ")
	sig := raw[at : strings.Index(raw, "-----END SSH SIGNATURE-----\n")+len("-----END SSH SIGNATURE-----\n")]
	r.tag("v1", "ann", signed)
	tag := r.raw("tag", "v1")
	plain := []byte(strings.Replace(raw, sig, "", 1))
	hash := plumbing.ComputeHash(plumbing.CommitObject, plain).String()
	retag := func(of, old, now string) []byte { return []byte(strings.Replace(of, old, now, 1)) }
	of := func(raw string) signature.Commit {
		return signature.Commit{Hash: plumbing.ComputeHash(plumbing.CommitObject, []byte(raw)).String(), Raw: []byte(raw)}
	}
	tagged := func(tag []byte, name string) signature.Commit {
		return signature.Commit{Hash: hash, Raw: plain, Tag: tag, TagName: name}
	}
	// The signatures of a file, by the same key.
	file := filepath.Join(r.dir, "payload")
	require.NoError(t, os.WriteFile(file, plain, 0o600))
	r.must("", "ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", "ann", file)
	ofFile, err := os.ReadFile(file + ".sig")
	require.NoError(t, err)
	header := func(text string) string {
		return "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n ") + "\n"
	}
	with := func(text string) string { return raw[:at] + text + raw[at+len(sig):] }
	for name, c := range map[string]struct {
		commit signature.Commit
		want   signature.Reason
	}{
		"as it is":                  {of(raw), ""},
		"another object's hash":     {signature.Commit{Hash: hash, Raw: []byte(raw)}, signature.Mismatch},
		"two signatures":            {of(with(sig + sig)), signature.Unsupported},
		"one after another header":  {of(with(sig + "encoding UTF-8\n" + sig)), signature.Unsupported},
		"gpgsig-sha256":             {of(with(sig + "gpgsig-sha256 -----BEGIN SSH SIGNATURE-----\n")), signature.Unsupported},
		"gpgsig-sha256 alone":       {of(with(strings.Replace(sig, "gpgsig ", "gpgsig-sha256 ", 1))), signature.Unsupported},
		"in mergetag":               {of(with("mergetag object " + hash + "\n " + strings.ReplaceAll(strings.TrimSuffix(sig, "\n"), "\n", "\n ") + "\n")), signature.Unsigned},
		"for files":                 {of(with(header(string(ofFile)))), signature.Mismatch},
		"X.509":                     {of(with(header("-----BEGIN SIGNED MESSAGE-----\nAAAA\n-----END SIGNED MESSAGE-----\n"))), signature.Unsupported},
		"unknown":                   {of(with("gpgsig sealed with a kiss\n")), signature.Unsupported},
		"text before":               {of(with(strings.Replace(sig, "gpgsig ", "gpgsig x\n ", 1))), signature.Unsupported},
		"text after":                {of(with(sig + " more\n")), signature.Unsupported},
		"too large":                 {of(with(header("-----BEGIN SSH SIGNATURE-----\n" + strings.Repeat("AAAA\n", 4<<10)))), signature.Unsupported},
		"commit too large":          {of(raw + strings.Repeat("x", 1<<20)), signature.Unsupported},
		"empty":                     {of(""), signature.Unsigned},
		"tag":                       {tagged(retag(string(tag), signed, signed), "v1"), signature.Mismatch}, // it is the signed commit's
		"tag's target altered":      {tagged(retag(string(tag), signed, hash), "v1"), signature.Mismatch},
		"tag of a tree":             {tagged(retag(string(tag), "type commit", "type tree"), "v1"), signature.Unsupported},
		"tag without head":          {tagged([]byte("x"), "v1"), signature.Unsupported},
		"tag with gpgsig":           {tagged(retag(string(tag), "tagger ", "gpgsig x\ntagger "), "v1"), signature.Unsupported},
		"tag too large":             {tagged(append(tag, make([]byte, 1<<20)...), "v1"), signature.Unsupported},
		"tag, signature in between": {tagged(append(bytes.Clone(tag), "-----BEGIN SSH SIGNATURE-----\n"...), "v1"), signature.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			e := signers(t, ann).Verify(c.commit, time.Now())
			if c.want == "" {
				assert.Nil(t, e)
				return
			}
			require.NotNil(t, e)
			assert.Equal(t, c.want, e.Reason, e.Message)
			assert.NotEmpty(t, e.Fix)
		})
	}
	r.git("tag", "plain", r.write("commit", plain))
	r.tag("v2", "ann", hash)
	v2 := tagged(r.raw("tag", "v2"), "v2")
	assert.Empty(t, reason(signers(t, ann), v2))
	v2.TagName = "v3"
	e := signers(t, ann).Verify(v2, time.Now())
	require.NotNil(t, e)
	assert.Equal(t, `tag "v3" is the signed tag "v2" under another name`, e.Message)
}

// sign returns a commit that an OpenPGP key has signed.
func sign(t *testing.T, key *openpgp.Entity, config *packet.Config) signature.Commit {
	t.Helper()
	plain := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <a@example.com> 1700000000 +0000\ncommitter a <a@example.com> 1700000000 +0000\n\na commit\n"
	var sig bytes.Buffer
	require.NoError(t, openpgp.ArmoredDetachSign(&sig, key, strings.NewReader(plain), config))
	raw := strings.Replace(plain, "\n\n", "\ngpgsig "+strings.ReplaceAll(strings.TrimSpace(sig.String()), "\n", "\n ")+"\n\n", 1)
	return signature.Commit{Hash: plumbing.ComputeHash(plumbing.CommitObject, []byte(raw)).String(), Raw: []byte(raw)}
}

func public(t *testing.T, key *openpgp.Entity) string {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	require.NoError(t, key.Serialize(w))
	require.NoError(t, w.Close())
	return out.String()
}

func TestVerify_OpenPGP(t *testing.T) {
	now := time.Now()
	before := func(d time.Duration) func() time.Time { return func() time.Time { return now.Add(-d) } }
	made := func(config *packet.Config) *openpgp.Entity {
		config.Algorithm = packet.PubKeyAlgoEdDSA
		key, err := openpgp.NewEntity("ann", "", "ann@example.com", config)
		require.NoError(t, err)
		return key
	}
	ann, eve := made(&packet.Config{}), made(&packet.Config{})
	old := made(&packet.Config{Time: before(48 * time.Hour), KeyLifetimeSecs: 3600})
	revoked := made(&packet.Config{})
	signedBefore := sign(t, revoked, nil)
	require.NoError(t, revoked.RevokeKey(packet.KeyRetired, "gone", nil))
	for ended, keys := range map[bool][]*openpgp.Entity{false: {ann, eve}, true: {old, revoked}} {
		for _, key := range signers(t, public(t, keys[0]), public(t, keys[1])).Keys {
			assert.Equal(t, ended, key.Ended(now), key)
		}
	}
	good := sign(t, ann, nil)
	altered := good
	altered.Raw = bytes.Replace(good.Raw, []byte("a commit\n"), []byte("b commit\n"), 1)
	altered.Hash = plumbing.ComputeHash(plumbing.CommitObject, altered.Raw).String()
	for name, c := range map[string]struct {
		commit signature.Commit
		key    *openpgp.Entity
		want   signature.Reason
	}{
		"signed":      {good, ann, ""},
		"not listed":  {sign(t, eve, nil), ann, signature.NotListed},
		"altered":     {altered, ann, signature.Mismatch},
		"key expired": {sign(t, old, &packet.Config{Time: before(48*time.Hour - time.Minute)}), old, signature.Expired},
		"key revoked": {signedBefore, revoked, signature.Revoked},
		"expired":     {sign(t, ann, &packet.Config{SigLifetimeSecs: 1, Time: before(-time.Hour)}), ann, signature.Expired},
		"SHA-1":       {sha1(t, good), ann, signature.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			e := signers(t, public(t, c.key)).Verify(c.commit, now)
			if c.want == "" {
				assert.Nil(t, e)
				return
			}
			require.NotNil(t, e)
			assert.Equal(t, c.want, e.Reason, e.Message)
		})
	}
}

// sha1 returns a commit whose OpenPGP signature names SHA-1.
func sha1(t *testing.T, commit signature.Commit) signature.Commit {
	t.Helper()
	head, rest, _ := strings.Cut(string(commit.Raw), "gpgsig ")
	armoured, message, _ := strings.Cut(rest, "\n\na commit")
	block, err := armor.Decode(strings.NewReader(strings.ReplaceAll(armoured, "\n ", "\n")))
	require.NoError(t, err)
	body, err := io.ReadAll(block.Body)
	require.NoError(t, err)
	require.Equal(t, []byte{0xc2, byte(len(body) - 2), 4, 0}, body[:4], "a packet of version 4")
	body[5] = 2 // SHA-1
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.SignatureType, nil)
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	raw := head + "gpgsig " + strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n ") + "\n\na commit" + message
	return signature.Commit{Hash: plumbing.ComputeHash(plumbing.CommitObject, []byte(raw)).String(), Raw: []byte(raw)}
}

// TestVerify_AsGnuPG compares with what Git has from gpg.
func TestVerify_AsGnuPG(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("no gpg")
	}
	r := newRepository(t)
	home, err := os.MkdirTemp("", "gpg") // short: sockets are in it
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = r.run("", "gpgconf", "--homedir", home, "--kill", "all")
		_ = os.RemoveAll(home)
	})
	r.home = home
	r.git("config", "gpg.format", "openpgp")
	key := func(name, algorithm string) string {
		r.must("", "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", name+"@example.com", algorithm, "default", "1d")
		return r.must("", "gpg", "--batch", "--armor", "--export", name+"@example.com")
	}
	ann, rsa := key("ann", "ed25519"), key("rsa", "rsa2048")
	commit := func(name string) signature.Commit {
		r.git("-c", "user.signingkey="+name+"@example.com", "commit", "--quiet", "--allow-empty", "--message", "a commit", "-S")
		return r.read(r.git("rev-parse", "HEAD"))
	}
	of := map[string]signature.Commit{"ann": commit("ann"), "rsa": commit("rsa")}
	for name, c := range of {
		require.True(t, r.gitVerifies(c), name)
		assert.Empty(t, reason(signers(t, ann, rsa), c), name)
	}
	assert.Equal(t, signature.NotListed, reason(signers(t, ann), of["rsa"]))
	e := signers(t, ann).Verify(of["ann"], time.Now().Add(48*time.Hour))
	require.NotNil(t, e)
	assert.Equal(t, signature.Expired, e.Reason)
	r.must("y\n0\n\ny\n", "gpg", "--command-fd", "0", "--yes", "--quiet", "--no-tty", "--output", "revoked", "--gen-revoke", "ann@example.com")
	r.must("", "gpg", "--batch", "--quiet", "--import", "revoked")
	assert.False(t, r.gitVerifies(of["ann"]), "Git refuses what a revoked key has signed")
	assert.Equal(t, signature.Revoked, reason(signers(t, r.must("", "gpg", "--batch", "--armor", "--export", "ann@example.com")), of["ann"]))
	r.git("tag", "-u", "rsa@example.com", "-m", "a release", "v1", of["ann"].Hash)
	tagged := r.read("v1")
	assert.True(t, r.gitVerifies(tagged))
	assert.Empty(t, reason(signers(t, rsa), tagged))
}

func TestReadKey_Refuses(t *testing.T) {
	r := newRepository(t)
	ann, weak := r.sshKey("ann", "-t", "ed25519"), r.sshKey("weak", "-t", "rsa", "-b", "1024")
	private, err := os.ReadFile(filepath.Join(r.dir, "ann"))
	require.NoError(t, err)
	small, err := openpgp.NewEntity("small", "", "", &packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 1024})
	require.NoError(t, err)
	ed, err := openpgp.NewEntity("ed", "", "", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	require.NoError(t, err)
	pgp := public(t, ed)
	for text, want := range map[string]string{
		"":                      "is not a public key",
		"ann":                   "is not a public key",
		weak:                    "1024 bits: at least 2048",
		public(t, small):        "1024 bits: at least 2048",
		string(private):         "is a private key",
		"cert-authority " + ann: "only namespaces=",
		`ann@example.com valid-before="20300101" ` + ann: "only namespaces=",
		`command="x" ` + ann:                             "only namespaces=",
		"ssh-ed25519 AAAA":                               "is not a public key",
		ann + "\n" + ann:                                 "is not a public key",
		"ssh-ed25519-cert-v01@openssh.com AAAA":          "is not a public key",
		pgp + pgp:                                        "is not one ASCII-armoured",
		strings.Replace(pgp, "\n\n", "\n\nAAAA", 1):      "is not",
		"-----BEGIN PGP PUBLIC KEY BLOCK-----":           "is not one ASCII-armoured",
		strings.Repeat("x", 33<<10):                      "more than 32 KiB",
	} {
		_, err := signature.ReadKey(text)
		require.ErrorContains(t, err, want, "%.200s", text)
	}
	key, err := signature.ReadKey("ann@example.com " + ann)
	require.NoError(t, err)
	assert.Regexp(t, `^SHA256:[A-Za-z0-9+/]{43} \(ann@example.com\)$`, key.String())
	key, err = signature.ReadKey(pgp)
	require.NoError(t, err)
	assert.Regexp(t, `^OpenPGP [0-9A-F]{40} \(ed\)$`, key.String())
}

// FuzzVerify never panics, and never accepts a commit or a tag that no listed key has signed.
func FuzzVerify(f *testing.F) {
	key, err := openpgp.NewEntity("ann", "", "", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	require.NoError(f, err)
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	require.NoError(f, err)
	require.NoError(f, key.Serialize(w))
	require.NoError(f, w.Close())
	var s signature.Signers
	for _, t := range []string{text.String(), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"} {
		if key, err := signature.ReadKey(t); err == nil {
			s.Keys = append(s.Keys, key)
		}
	}
	f.Add([]byte("tree x\ngpgsig -----BEGIN SSH SIGNATURE-----\n U1NIU0lH\n -----END SSH SIGNATURE-----\n\na"), []byte("object x\ntype commit\ntag v1\n\na\n-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"))
	f.Add([]byte("gpgsig -----BEGIN PGP SIGNATURE-----\n \n wsBcBAABCAAQ\n -----END PGP SIGNATURE-----\n\n"), []byte{})
	f.Add([]byte("gpgsig \n gpgsig\n\n"), []byte("object \ntype commit\ntag \n\n"))
	f.Fuzz(func(t *testing.T, raw, tag []byte) {
		c := signature.Commit{Hash: plumbing.ComputeHash(plumbing.CommitObject, raw).String(), Raw: raw, Tag: tag, TagName: "v1"}
		if e := s.Verify(c, time.Now()); e == nil || e.Fix == "" || e.Message == "" {
			t.Fatalf("accepted, or refused without a reason: %v", e)
		}
		if _, err := signature.ReadKey(string(raw)); err != nil && err.Error() == "" {
			t.Fatal("refused without a reason")
		}
	})
}
