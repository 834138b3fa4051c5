package way

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

var signIn = &signin.Demand{
	App: "bench/app", Key: signin.KeyOf([]byte("a secret of the benchmark's agent")), Provider: everyone{}, Emails: []string{signin.Everyone},
}

// everyone is a provider that identifies each visitor at once: sessions are measured, and not how
// they begin.
type everyone struct{}

func (everyone) AuthorizeURL(_ context.Context, redirect, state, _, _ string) (string, error) {
	return redirect + "?" + url.Values{"code": {"bench"}, "state": {state}}.Encode(), nil
}

func (everyone) Exchange(context.Context, string, string, string, string) (signin.Person, error) {
	return signin.Person{Subject: "visitor", Email: "visitor@example.com", EmailVerified: true, Groups: []string{"staff"}}, nil
}

// SignIn signs a visitor in at SignInHost. The client has the session from then on.
func SignIn(ctx context.Context, client *http.Client) {
	client.Jar = run.Must(cookiejar.New(nil))
	req := run.Must(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+SignInHost+"/", http.NoBody))
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	resp := run.Must(client.Do(req))
	run.Check(resp.Body.Close())
	if at := (&url.URL{Scheme: "https", Host: SignInHost}); len(client.Jar.Cookies(at)) == 0 {
		run.Failf("the visitor has no session: %s", resp.Status)
	}
}
