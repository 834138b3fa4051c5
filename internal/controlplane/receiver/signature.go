package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// hexSignatures are the headers with an HMAC-SHA256 of the body in hexadecimal, and what stands
// before it. GitHub, Gitea and Forgejo send the first one, and so can any other sender. The second
// is Bitbucket's; GitHub's header of that name has a SHA-1, which does not count.
var hexSignatures = []struct{ header, prefix string }{
	{"X-Hub-Signature-256", "sha256="},
	{"X-Hub-Signature", "sha256="},
	{"X-Gitea-Signature", ""},
	{"X-Forgejo-Signature", ""},
}

// headerGitLab has the secret itself:
// https://docs.gitlab.com/user/project/integrations/webhooks/
const headerGitLab = "X-Gitlab-Token"

// verify reports an error unless the request's sender has the secret.
func verify(secret string, h http.Header, body []byte, now time.Time) error {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	sum, signed := mac.Sum(nil), false
	for _, s := range hexSignatures {
		text, ok := strings.CutPrefix(h.Get(s.header), s.prefix)
		if !ok || text == "" {
			continue
		}
		signed = true
		if given, err := hex.DecodeString(text); err == nil && hmac.Equal(given, sum) {
			return nil
		}
	}
	if token := h.Get(headerGitLab); token != "" {
		signed = true
		// Of hashes: the comparison's time would tell the length of the secret.
		given, wanted := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(secret))
		if subtle.ConstantTimeCompare(given[:], wanted[:]) == 1 {
			return nil
		}
	}
	if webhook.Signed(h) {
		signed = true
		if webhook.Verify(secret, h, body, now) {
			return nil
		}
	}
	if !signed {
		return problem.Errorf(problem.Forbidden, "enter the webhook's secret in the Git server's settings",
			"the request has no signature: none of X-Hub-Signature-256, X-Gitea-Signature, X-Gitlab-Token and Webhook-Signature")
	}
	return problem.Errorf(problem.Forbidden,
		"enter the secret that `pipeops-runner source webhook set` printed last, in the Git server's settings", "the signature is not by the webhook's secret")
}
