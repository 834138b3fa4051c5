package git_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

var main = runnerapi.GitRef{Branch: "main"}

// secret is a Secret for a server's repositories over HTTPS.
func secret(s *gitserver.Server) map[string][]byte {
	return map[string][]byte{
		"url": []byte(s.HTTPS.URL + "/shop"), "username": []byte(s.Username), "password": []byte(s.Password), "ca.crt": s.CA(),
	}
}

func remote(t *testing.T, url string, secret map[string][]byte) git.Remote {
	t.Helper()
	u, err := runnerapi.ParseGitURL(url)
	require.NoError(t, err)
	auth, err := git.ReadAuth("deploy", secret, u)
	require.NoError(t, err)
	return git.Remote{Guard: gitserver.Guard, URL: url, Auth: auth}
}

func fetch(t *testing.T, r git.Remote, ref runnerapi.GitRef, folder string) (string, git.Files, error) {
	t.Helper()
	found, files, err := git.Fetch(t.Context(), r, ref, folder, "", git.DefaultLimits)
	return found.Commit, files, err
}

// refused wants an error for this reason that holds no secret, and says what to do.
func refused(t *testing.T, err error, reason git.Reason, parts ...string) {
	t.Helper()
	e := &git.Error{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, reason, e.Reason, e.Error())
	assert.NotEmpty(t, e.Fix)
	assert.NotContains(t, e.Error(), "correct horse")
	for _, part := range parts {
		assert.Contains(t, e.Error(), part)
	}
}

func TestFetch_HTTPS(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	repo := s.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"web/app.yaml": "image: one\n", "README.md": "hello\n", ".sourceignore": "web\n"})
	first := repo.Commit(map[string]string{"web/app.yaml": "image: two\n"})
	r := remote(t, s.URL("shop/deploy.git"), secret(s))

	commit, files, err := fetch(t, r, main, "")
	require.NoError(t, err)
	assert.Equal(t, first, commit)
	assert.Equal(t, git.Files{"web/app.yaml": []byte("image: two\n"), "README.md": []byte("hello\n"), ".sourceignore": []byte("web\n")}, files)

	commit, files, err = fetch(t, r, runnerapi.GitRef{}, "web")
	require.NoError(t, err)
	assert.Equal(t, first, commit, "the default branch")
	assert.Equal(t, git.Files{"web/app.yaml": []byte("image: two\n"), ".sourceignore": []byte("web\n")}, files)

	packs := s.Packs.Load()
	found, files, err := git.Fetch(t.Context(), r, main, "", first, git.DefaultLimits)
	require.NoError(t, err)
	assert.Equal(t, git.Found{Commit: first}, found)
	assert.Nil(t, files)
	assert.Equal(t, packs, s.Packs.Load(), "nothing new is not fetched")
}

func TestFetch_TagsAndCommits(t *testing.T) {
	s := gitserver.Start(t, "", "")
	repo := s.Create(t, "shop/deploy.git")
	first := repo.Commit(map[string]string{"a": "1"})
	repo.Git("tag", "light")
	repo.Git("tag", "--annotate", "--message", "a release", "v1")
	repo.Commit(map[string]string{"a": "2"})
	repo.Git("push", "--quiet", "--tags", "origin")
	between := repo.Commit(map[string]string{"a": "3"})
	repo.Commit(map[string]string{"a": "4"})
	r := remote(t, s.URL("shop/deploy.git"), map[string][]byte{"url": []byte(s.HTTPS.URL + "/shop/"), "ca.crt": s.CA()})

	for name, ref := range map[string]runnerapi.GitRef{"light": {Tag: "light"}, "annotated": {Tag: "v1"}} {
		commit, files, err := fetch(t, r, ref, "")
		require.NoError(t, err, name)
		assert.Equal(t, first, commit, name)
		assert.Equal(t, "1", string(files["a"]), name)
	}
	commit, files, err := fetch(t, r, runnerapi.GitRef{Commit: between}, "")
	require.NoError(t, err)
	assert.Equal(t, between, commit)
	assert.Equal(t, "3", string(files["a"]))
	_, _, err = fetch(t, r, runnerapi.GitRef{Commit: strings.Repeat("5", 40)}, "")
	refused(t, err, git.RefMissing, "5555")
}

func TestFetch_SSH(t *testing.T) {
	s := gitserver.Start(t, "", "")
	repo := s.Create(t, "shop/deploy.git")
	want := repo.Commit(map[string]string{"app.yaml": "image: one\n"})
	ssh := s.StartSSH(t)
	data := map[string][]byte{"url": []byte(ssh.URL("shop")), "identity": ssh.Identity, "known_hosts": ssh.KnownHosts}
	commit, files, err := fetch(t, remote(t, ssh.URL("shop/deploy.git"), data), main, "")
	require.NoError(t, err)
	assert.Equal(t, want, commit)
	assert.Equal(t, "image: one\n", string(files["app.yaml"]))

	data["known_hosts"] = hashedLine(t, ssh)
	_, _, err = fetch(t, remote(t, ssh.URL("shop/deploy.git"), data), main, "")
	require.NoError(t, err, "names may be hashed")

	_, _, err = fetch(t, remote(t, ssh.URL("shop/none.git"), data), main, "")
	refused(t, err, git.NotFound)
	with := func(key string, value []byte) map[string][]byte {
		out := map[string][]byte{"url": data["url"], "identity": ssh.Identity, "known_hosts": ssh.KnownHosts}
		out[key] = value
		return out
	}
	_, _, err = fetch(t, remote(t, ssh.URL("shop/deploy.git"), with("identity", ssh.NewIdentity(t))), main, "")
	refused(t, err, git.Denied)
	_, _, err = fetch(t, remote(t, ssh.URL("shop/deploy.git"), with("known_hosts", ssh.NewKnownHosts(t))), main, "")
	refused(t, err, git.HostKey, "the connection may be intercepted")
	_, _, err = fetch(t, remote(t, ssh.URL("shop/deploy.git"), with("known_hosts", nil)), main, "")
	refused(t, err, git.HostKey, "has no key for")
	_, _, err = fetch(t, git.Remote{Guard: gitserver.Guard, URL: ssh.URL("shop/deploy.git")}, main, "")
	refused(t, err, git.WantsPassword)
}

// hashedLine is the server's line with its name hashed, as ssh-keygen -H does it.
func hashedLine(t *testing.T, s *gitserver.SSH) []byte {
	t.Helper()
	name, key, found := strings.Cut(string(s.KnownHosts), " ")
	require.True(t, found)
	salt := bytes.Repeat([]byte{7}, 20)
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	b64 := base64.StdEncoding.EncodeToString
	return []byte("|1|" + b64(salt) + "|" + b64(mac.Sum(nil)) + " " + key)
}

func TestFetch_NamesErrors(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	s.Create(t, "shop/deploy.git").Commit(map[string]string{"web/app.yaml": "image: one\n"})
	s.Create(t, "shop/empty.git")
	good := secret(s)
	wrong := map[string][]byte{"url": good["url"], "username": []byte("reader"), "password": []byte("correct horse no more"), "ca.crt": good["ca.crt"]}
	none := map[string][]byte{"url": good["url"], "ca.crt": good["ca.crt"]}
	untrusted := map[string][]byte{"url": good["url"], "username": good["username"], "password": good["password"]}
	for name, c := range map[string]struct {
		url    string
		secret map[string][]byte
		ref    runnerapi.GitRef
		folder string
		reason git.Reason
		part   string
	}{
		"no such repository":   {s.URL("shop/none.git"), good, main, "", git.NotFound, "shop/none.git"},
		"asks for a password":  {s.URL("shop/deploy.git"), none, main, "", git.WantsPassword, "asks for a password"},
		"wrong password":       {s.URL("shop/deploy.git"), wrong, main, "", git.Denied, "user and password"},
		"no such branch":       {s.URL("shop/deploy.git"), good, runnerapi.GitRef{Branch: "develop"}, "", git.RefMissing, "branch develop"},
		"no such tag":          {s.URL("shop/deploy.git"), good, runnerapi.GitRef{Tag: "v9"}, "", git.RefMissing, "tag v9"},
		"no such path":         {s.URL("shop/deploy.git"), good, main, "db", git.PathMissing, "has no db"},
		"nothing in it":        {s.URL("shop/empty.git"), good, main, "", git.RefMissing, ""},
		"unknown certificate":  {s.URL("shop/deploy.git"), untrusted, main, "", git.NotTrusted, "ca.crt"},
		"host without address": {"https://git.invalid/a.git", nil, main, "", git.Unreachable, "git.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			r := git.Remote{Guard: gitserver.Guard, URL: c.url}
			if c.secret != nil {
				r = remote(t, c.url, c.secret)
			}
			_, _, err := fetch(t, r, c.ref, c.folder)
			refused(t, err, c.reason, c.part)
		})
	}
}

// TestFetch_RefusesLoopback has servers at addresses that the guard refuses,
// under a name and as an address.
func TestFetch_RefusesLoopback(t *testing.T) {
	s := gitserver.Start(t, "", "")
	s.Create(t, "shop/deploy.git").Commit(map[string]string{"app.yaml": "image: one\n"})
	ssh := s.StartSSH(t)
	byName := strings.Replace(ssh.URL("shop/deploy.git"), "127.0.0.1", "localhost", 1)
	known := bytes.ReplaceAll(ssh.KnownHosts, []byte("127.0.0.1"), []byte("localhost"))
	over := remote(t, byName, map[string][]byte{"url": []byte(byName), "identity": ssh.Identity, "known_hosts": known})
	for _, r := range []git.Remote{{URL: s.URL("shop/deploy.git")}, {URL: "https://169.254.169.254/latest.git"}, over} {
		r.Guard = egress.Guard{Hosts: egress.EveryHost}
		_, _, err := fetch(t, r, main, "")
		refused(t, err, git.Forbidden, "loopback, link-local or metadata address")
	}
	assert.Zero(t, s.Requests.Load())
}

func TestFetch_Limits(t *testing.T) {
	s := gitserver.Start(t, "", "")
	repo := s.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"zeros": strings.Repeat("0", 900<<10), "nulls": strings.Repeat("n", 900<<10), "app.yaml": "image: one\n"})
	r := remote(t, s.URL("shop/deploy.git"), map[string][]byte{"url": []byte(s.HTTPS.URL + "/shop"), "ca.crt": s.CA()})
	with := func(change func(*git.Limits)) git.Limits {
		l := git.DefaultLimits
		change(&l)
		return l
	}
	for name, l := range map[string]git.Limits{
		"unpacked":   with(func(l *git.Limits) { l.Unpacked = 1 << 20 }),
		"packed":     with(func(l *git.Limits) { l.Pack = 256 }),
		"objects":    with(func(l *git.Limits) { l.Objects = 3 }),
		"advertised": with(func(l *git.Limits) { l.Advertised = 64 }),
	} {
		_, _, err := git.Fetch(t.Context(), r, main, "", "", l)
		require.Error(t, err, name)
		refused(t, err, git.TooLarge)
	}
	_, files, err := git.Fetch(t.Context(), r, main, "", "", with(func(l *git.Limits) { l.File = 1 << 10 }))
	require.NoError(t, err)
	assert.Equal(t, git.Files{"app.yaml": []byte("image: one\n")}, files, "what is too large to be a manifest is left out")

	repo.Config("uploadpack.allowFilter", "true")
	_, files, err = git.Fetch(t.Context(), r, main, "", "", with(func(l *git.Limits) { l.File, l.Unpacked = 1<<10, 64<<10 }))
	require.NoError(t, err, "a server that can leaves it out itself")
	assert.Len(t, files, 1)
}

func TestUnpack_BoundsDeltas(t *testing.T) {
	s := gitserver.Start(t, "", "")
	repo := s.Create(t, "shop/deploy.git")
	line := strings.Repeat("the same text that compresses well, over and over\n", 15<<10)
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		files[name] = line + name
	}
	repo.Commit(files)
	r := remote(t, s.URL("shop/deploy.git"), map[string][]byte{"url": []byte(s.HTTPS.URL + "/shop"), "ca.crt": s.CA()})
	l := git.DefaultLimits
	l.Unpacked = 4 << 20
	_, _, err := git.Fetch(t.Context(), r, main, "", "", l)
	refused(t, err, git.TooLarge)
	_, all, err := fetch(t, r, main, "")
	require.NoError(t, err)
	assert.Equal(t, line+"h", string(all["h"]))
}

// TestFetch_Links follows links within the repository, and skips other links and submodules.
func TestFetch_Links(t *testing.T) {
	s := gitserver.Start(t, "", "")
	repo := s.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"app.yaml": "one", "charts/sub/Chart.yaml": "two"})
	repo.Git("update-index", "--add", "--cacheinfo", "160000,"+repo.Git("rev-parse", "HEAD")+",module")
	for name, target := range map[string]string{
		"web/a.yaml": "../app.yaml", "web/charts": "../charts", "web/b.yaml": "a.yaml",
		"loop": ".", "charts/sub/loop": "../../web", "x": "y", "y": "x", "out": "../../etc/passwd", "abs": "/app.yaml", "none": "nothing",
	} {
		file := filepath.Join(t.TempDir(), "target")
		require.NoError(t, os.WriteFile(file, []byte(target), 0o600))
		repo.Git("update-index", "--add", "--cacheinfo", "120000,"+repo.Git("hash-object", "-w", file)+","+name)
	}
	repo.Git("commit", "--quiet", "--message", "links")
	repo.Git("push", "--quiet", "origin", "HEAD:main")
	_, files, err := fetch(t, remote(t, s.URL("shop/deploy.git"), map[string][]byte{"url": []byte(s.HTTPS.URL + "/shop"), "ca.crt": s.CA()}), main, "web")
	require.NoError(t, err)
	assert.Equal(t, git.Files{"web/a.yaml": []byte("one"), "web/b.yaml": []byte("one"), "web/charts/sub/Chart.yaml": []byte("two")}, files)
}

func TestFetch_CredentialsStayAtHost(t *testing.T) {
	var sent []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	first := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(first.Close)
	r := git.Remote{Guard: gitserver.Guard, URL: first.URL + "/shop.git", Auth: git.Auth{Username: "reader", Password: "correct horse"}}
	pool := first.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	r.Auth.Roots = pool
	_, _, err := fetch(t, r, main, "")
	refused(t, err, git.Moved, strings.TrimPrefix(other.URL, "https://"))
	assert.Empty(t, sent)

	u, err := runnerapi.ParseGitURL("https://evil.example.com/shop.git")
	require.NoError(t, err)
	for name, data := range map[string]map[string][]byte{
		"no url":             {"username": []byte("a"), "password": []byte("correct horse")},
		"another server":     {"url": []byte("https://git.example.com/"), "password": []byte("correct horse")},
		"another repository": {"url": []byte("https://evil.example.com/sho"), "password": []byte("correct horse")},
		"a database's":       {"url": []byte("postgres://db/shop"), "password": []byte("correct horse")},
	} {
		_, err := git.ReadAuth("deploy", data, u)
		require.Error(t, err, name)
		refused(t, err, git.Credentials, "deploy")
	}
	for _, path := range []string{
		"shop/../payroll.git", "shop/%2e%2e/payroll.git", "shop%2f..%2fpayroll.git", "shop/..%2fpayroll.git", "shop/%252e%252e/payroll.git",
		"shop/./web.git", "shop//web.git", "shop/web.git//", "/shop/web.git", "shop/..%5cpayroll.git", "shop/..;a=b/payroll.git", "shop/.. /payroll.git",
		"shop/%2e%2e%20/payroll.git", "shop/%c0%ae%c0%ae/payroll.git", "shop/a%0ab", "shop/..", "..", "shop/a%00b",
	} {
		for _, server := range []string{"https://git.example.com/", "ssh://git@git.example.com/", "git@git.example.com:", "git@git.example.com:/"} {
			if server == "git@git.example.com:" && path == "/shop/web.git" {
				continue // one way of writing an absolute path
			}
			_, err := runnerapi.ParseGitURL(server + path)
			assert.Error(t, err, server+path)
			_, err = git.ReadAuth("deploy", map[string][]byte{"url": []byte(server + path)}, u)
			refused(t, err, git.Credentials)
		}
	}
	for _, address := range []string{"ssh://git@git.example.com/shop/~root/a.git", "git@git.example.com:~/a.git", "ssh://git@git.example.com/~/a.git"} {
		_, err := runnerapi.ParseGitURL(address)
		assert.Error(t, err, address)
	}
}

// TestFetch_RedirectsStayInScope redirects on the same host.
func TestFetch_RedirectsStayInScope(t *testing.T) {
	s := gitserver.Start(t, "reader", "correct horse")
	s.Create(t, "shop/deploy.git").Commit(map[string]string{"app.yaml": "image: one\n"})
	s.Create(t, "payroll/deploy.git").Commit(map[string]string{"app.yaml": "image: two\n"})
	var lock sync.Mutex
	leads, reached := map[string]string{}, []string{}
	backend := s.HTTPS.Config.Handler
	s.HTTPS.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		for from, to := range leads {
			if suffix, ok := strings.CutPrefix(r.URL.Path, from); ok {
				if strings.HasSuffix(to, ".php") {
					suffix = ""
				}
				w.Header().Set("Location", to+suffix+"?"+r.URL.RawQuery)
				w.WriteHeader(http.StatusMovedPermanently)
				return
			}
		}
		reached = append(reached, r.URL.EscapedPath())
		backend.ServeHTTP(w, r)
	})
	lead := func(to string) {
		lock.Lock()
		defer lock.Unlock()
		leads, reached = map[string]string{"/shop/web.git": to}, nil
	}

	lead("/shop/deploy.git")
	_, files, err := fetch(t, remote(t, s.URL("shop/web.git"), secret(s)), main, "")
	require.NoError(t, err, "below the Secret's url")
	assert.Equal(t, "image: one\n", string(files["app.yaml"]))
	for to, reason := range map[string]git.Reason{
		"/payroll/deploy.git":             git.Moved,
		"/shop/../payroll/deploy.git":     git.Moved,
		"/shop/%2e%2e/payroll/deploy.git": git.NotGit,
		"/shop/..%2fpayroll/deploy.git":   git.NotGit,
		"/payroll/login.php":              git.NotGit,
	} {
		lead(to)
		_, _, err := fetch(t, remote(t, s.URL("shop/web.git"), secret(s)), main, "")
		refused(t, err, reason)
		assert.Empty(t, reached, to)
	}
}

func TestFetch_SilentServerTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	limits := git.DefaultLimits
	limits.Time = 200 * time.Millisecond
	_, _, err = git.Fetch(t.Context(), git.Remote{Guard: gitserver.Guard, URL: "https://" + l.Addr().String() + "/a.git"}, main, "", "", limits)
	refused(t, err, git.Timeout)
	s := gitserver.Start(t, "", "")
	ssh := s.StartSSH(t)
	quiet := "ssh://git@" + l.Addr().String() + "/a.git"
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	_, key, _ := strings.Cut(string(ssh.KnownHosts), " ")
	_, _, err = git.Fetch(t.Context(), remote(t, quiet, map[string][]byte{
		"url": []byte(quiet), "identity": ssh.Identity, "known_hosts": []byte("[127.0.0.1]:" + port + " " + key),
	}), main, "", "", limits)
	refused(t, err, git.Timeout)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = git.Fetch(ctx, git.Remote{Guard: gitserver.Guard, URL: s.URL("a.git")}, main, "", "", git.DefaultLimits)
	require.ErrorIs(t, err, context.Canceled)
}

func TestFetch_NamesWrongServer(t *testing.T) {
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/liar") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		}
		_, _ = w.Write([]byte("<html>hello</html>"))
	}))
	web.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	web.StartTLS()
	t.Cleanup(web.Close)
	for _, path := range []string{"/page", "/liar"} {
		r := git.Remote{Guard: gitserver.Guard, URL: web.URL + path, Auth: git.Auth{Roots: web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
		_, _, err := fetch(t, r, main, "")
		refused(t, err, git.NotGit)
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]runnerapi.GitURL{
		"https://git.example.com/shop/web.git": {Host: "git.example.com", Path: "/shop/web.git"},
		"https://GIT.example.com:8443/a":       {Host: "git.example.com:8443", Path: "/a"},
		"ssh://git.example.com/a.git":          {SSH: true, User: "git", Host: "git.example.com", Path: "/a.git"},
		"ssh://me@git.example.com:2222/a.git":  {SSH: true, User: "me", Host: "git.example.com:2222", Path: "/a.git"},
		"git@github.com:shop/web.git":          {SSH: true, User: "git", Host: "github.com", Path: "shop/web.git"},
	} {
		got, err := runnerapi.ParseGitURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "shop", "http://git.example.com/a.git", "git://git.example.com/a.git", "file:///etc", "/etc", "ext::sh -c id",
		"https://user:pass@git.example.com/a", "https://git.example.com", "https://git.example.com/", "https:///a", "ssh://-oProxyCommand=id/a",
		"ssh://-x@host/a", "git@host:-x", "https://git.example.com/a?b", "https://git.example.com/a#b", "https://git.example.com/a b", "ssh://git:pw@host/a",
		"https://git.example.com/" + strings.Repeat("a", 2100),
	} {
		_, err := runnerapi.ParseGitURL(text)
		assert.Error(t, err, text)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Add(binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), 1<<31))
	limits := git.DefaultLimits
	limits.Unpacked = 1 << 20
	f.Fuzz(func(t *testing.T, pack []byte) {
		_, files, err := git.Unpack(pack, strings.Repeat("a", 40), "", limits)
		known := &git.Error{}
		if err != nil && !errors.As(err, &known) {
			t.Fatalf("an error that says nothing: %v", err)
		}
		if err != nil && len(files) > 0 {
			t.Fatal("files in spite of an error")
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add("git@github.com:shop/web.git", "github.com ssh-ed25519 AAAA", "git@github.com:shop")
	f.Add("https://h/shop/..%2fpayroll.git", "", "https://h/shop/")
	f.Add("ssh://git@h/shop/%2e%2e/payroll", "", "git@h:shop")
	f.Fuzz(func(t *testing.T, address, hosts, scope string) {
		u, err := runnerapi.ParseGitURL(address)
		if err == nil {
			require.False(t, strings.HasPrefix(u.Path, "-"))
			require.True(t, u.Within(u))
			require.NotContains(t, u.Host, " ")
			require.NotContains(t, u.Path, "%", "nothing is left to be decoded")
		}
		if s, wrong := runnerapi.ParseGitURL(scope); err == nil && wrong == nil && u.Within(s) {
			below, base := path.Clean("/"+u.Path), path.Clean("/"+s.Path)
			require.True(t, below == base || strings.HasPrefix(below, base+"/"), "%s is not below %s", below, base)
		}
		_, _ = git.ParseHosts([]byte(hosts)) // neither hangs nor panics
	})
}
