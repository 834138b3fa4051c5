package source

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestIngressOfPreview: the source says whom a preview lets in, and the request's file can only
// demand more.
func TestIngressOfPreview(t *testing.T) {
	everyone := &runnerapi.SignIn{Emails: []string{"*"}}
	staff := &runnerapi.Visitors{SignIn: &runnerapi.SignIn{Groups: []string{"staff"}}}
	hosts := []runnerapi.IngressHost{{Host: "shop.example.com", TLSSecret: "tls"}}
	signIn := runnerapi.SourcePreviewOf{SignIn: true}
	const allowList = "nginx.ingress.kubernetes.io/whitelist-source-range"
	for name, c := range map[string]struct {
		of   runnerapi.SourcePreviewOf
		file *runnerapi.Ingress
		want *runnerapi.Ingress
	}{
		"nothing public":     {signIn, nil, nil},
		"open":               {runnerapi.SourcePreviewOf{}, &runnerapi.Ingress{Class: "nginx", Hosts: hosts}, &runnerapi.Ingress{Class: "nginx", Public: true}},
		"sign-in":            {signIn, &runnerapi.Ingress{Class: "nginx", Hosts: hosts}, &runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{SignIn: everyone}}},
		"the source's":       {runnerapi.SourcePreviewOf{Visitors: staff}, &runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{BasicAuthSecret: "a"}}, &runnerapi.Ingress{Public: true, Visitors: staff}},
		"the file's sign-in": {signIn, &runnerapi.Ingress{Public: true, Visitors: staff}, &runnerapi.Ingress{Public: true, Visitors: staff}},
		"the file's passwords": {
			signIn, &runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{BasicAuthSecret: "a"}},
			&runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{BasicAuthSecret: "a"}},
		},
		"a file that only limits requests": {
			signIn, &runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{RequestsPerSecond: 5}},
			&runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{RequestsPerSecond: 5, SignIn: everyone}},
		},
		"annotations hold beside it": {
			signIn, &runnerapi.Ingress{Public: true, Annotations: map[string]string{allowList: "192.0.2.0/24"}},
			&runnerapi.Ingress{
				Public: true, Annotations: map[string]string{allowList: "192.0.2.0/24"},
				Visitors: &runnerapi.Visitors{AllowFrom: []string{"192.0.2.0/24"}, SignIn: everyone},
			},
		},
		"annotations that close the route": {
			signIn, &runnerapi.Ingress{Public: true, Annotations: map[string]string{"nginx.ingress.kubernetes.io/auth-url": "https://x"}},
			&runnerapi.Ingress{Public: true, Annotations: map[string]string{"nginx.ingress.kubernetes.io/auth-url": "https://x"}},
		},
	} {
		assert.Equal(t, c.want, ingressOfPreview(&c.of, c.file), name)
	}
}
