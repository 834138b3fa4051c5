package login

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Run sleeps no longer than until the certificate is due.
func TestLogin_NextRenewal(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	l := &Login{now: func() time.Time { return now }}
	lasting := func(d time.Duration) {
		l.certificate.Store(&tls.Certificate{Leaf: &x509.Certificate{NotBefore: now, NotAfter: now.Add(d)}})
	}
	lasting(24 * time.Hour)
	assert.Equal(t, time.Hour, l.next(time.Hour))
	lasting(time.Hour)
	assert.Equal(t, 40*time.Minute, l.next(time.Hour))
	now = now.Add(2 * time.Hour)
	assert.Equal(t, soonest, l.next(time.Hour), "it failed, and is tried again soon")
	assert.Equal(t, time.Second, l.next(time.Second))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"certificate":"a","ca":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var answer Answer
		if err := parse(body, &answer); err == nil && len(body) > maxAnswer {
			t.Fatal("taken though it is too large")
		}
	})
}

func FuzzReadExchange(f *testing.F) {
	f.Add([]byte(`{"runner":"ci","token":"a.b.c","request":"d"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := readExchange(bytes.NewReader(body))
		if err == nil && (in.Runner == "" || in.Token == "" || in.Request == "") {
			t.Fatal("accepted though incomplete")
		}
		if in.Token != "" && len(in.Token) > 8 && strings.Contains(fmt.Sprintf("%v %+v %#v %v", in, in, in, err), in.Token) {
			t.Fatal("the token is shown")
		}
	})
}
