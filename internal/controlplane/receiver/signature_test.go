package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// TestVerify_Senders has the examples of GitHub's documentation and of Standard Webhooks'
// specification, and what the others send by the same rules.
func TestVerify_Senders(t *testing.T) {
	const (
		github   = "It's a Secret to Everybody"
		greeting = "Hello, World!"
		sum      = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
		standard = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	)
	at := time.Unix(1614265330, 0)
	signed := header("Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330",
		"Webhook-Signature", "v1,bm90IHRoaXMgb25l v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	for name, c := range map[string]struct {
		secret, body string
		header       http.Header
		now          time.Time
		taken        bool
	}{
		"GitHub":                     {github, greeting, header("X-Hub-Signature-256", "sha256="+sum, "X-Hub-Signature", "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"), at, true},
		"Gitea":                      {github, greeting, header("X-Gitea-Signature", sum), at, true},
		"Forgejo":                    {github, greeting, header("X-Forgejo-Signature", sum), at, true},
		"Bitbucket":                  {github, greeting, header("X-Hub-Signature", "sha256="+sum), at, true},
		"GitLab":                     {github, greeting, header("X-Gitlab-Token", github), at, true},
		"Standard Webhooks":          {standard, `{"test": 2432232314}`, signed, at, true},
		"one of two":                 {github, greeting, header("X-Gitlab-Token", github, "Webhook-Signature", "v1,bm90"), at, true},
		"replayed after ten minutes": {standard, `{"test": 2432232314}`, signed, at.Add(10 * time.Minute), false},
		"another body":               {github, greeting + " ", header("X-Hub-Signature-256", "sha256="+sum), at, false},
		"another secret":             {github + ".", greeting, header("X-Hub-Signature-256", "sha256="+sum), at, false},
		"another token":              {github, greeting, header("X-Gitlab-Token", github[1:]), at, false},
		"SHA-1 alone":                {github, greeting, header("X-Hub-Signature", "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"), at, false},
		"no prefix":                  {github, greeting, header("X-Hub-Signature-256", sum), at, false},
		"shortened":                  {github, greeting, header("X-Hub-Signature-256", "sha256="+sum[:8]), at, false},
		"empty":                      {github, greeting, header("X-Hub-Signature-256", "sha256="), at, false},
		"none":                       {github, greeting, header(), at, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := verify(c.secret, c.header, []byte(c.body), c.now)
			if c.taken {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.True(t, problem.Is(err, problem.Forbidden))
			assert.NotContains(t, err.Error(), c.secret)
		})
	}
}

func TestCommitOf(t *testing.T) {
	const commit = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"
	form := header("Content-Type", "application/x-www-form-urlencoded")
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   string
	}{
		"GitHub":        {header(), `{"ref":"refs/heads/main","after":"` + commit + `","commits":[{"id":"x"}]}`, commit},
		"a form":        {form, `payload=%7B%22after%22%3A%22` + commit + `%22%7D`, commit},
		"GitLab":        {header(), `{"object_kind":"push","checkout_sha":"` + commit + `","after":null}`, commit},
		"Bitbucket":     {header(), `{"push":{"changes":[{"new":null},{"new":{"target":{"hash":"` + commit + `"}}}]}}`, commit},
		"deleted":       {header(), `{"after":"0000000000000000000000000000000000000000"}`, ""},
		"no commit":     {header(), `{"after":"main; rm -rf /"}`, ""},
		"another type":  {header(), `{"after":{}}`, ""},
		"nothing":       {header(), ``, ""},
		"a broken form": {form, `payload=%zz`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, commitOf(c.header, []byte(c.body)))
		})
	}
}

func TestMoves(t *testing.T) {
	for _, event := range []string{"", "push", "pull_request", "create", "Push Hook", "Tag Push Hook", "Merge Request Hook", "repo:push", "repo:refs_changed_push"} {
		assert.True(t, moves(event), event)
	}
	for _, event := range []string{"ping", "star", "issues", "Note Hook", "diagnostics:ping"} {
		assert.False(t, moves(event), event)
	}
}

// FuzzTake feeds what a Git server sends.
func FuzzTake(f *testing.F) {
	f.Add("application/json", "sha256=00", `{"after":"da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}`)
	f.Add("application/x-www-form-urlencoded", "v1,AAAA", `payload=%7B%7D`)
	f.Add("", "", `{"push":{"changes":[]}}`)
	f.Fuzz(func(t *testing.T, kind, signature, body string) {
		h := header("Content-Type", kind, "X-Hub-Signature-256", signature, "X-Gitlab-Token", signature, "Webhook-Signature", signature)
		mac := hmac.New(sha256.New, []byte("secret"))
		mac.Write([]byte(body))
		ours := signature == "sha256="+hex.EncodeToString(mac.Sum(nil)) || signature == "secret"
		assert.Equal(t, ours, verify("secret", h, []byte(body), time.Now()) == nil)
		if commit := commitOf(h, []byte(body)); commit != "" {
			assert.Regexp(t, commitID, commit)
		}
		assert.LessOrEqual(t, len(eventOf(header("X-Github-Event", signature))), 4*maxEvent)
	})
}
