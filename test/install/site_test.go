package install

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const (
	latest    = "/github.com/pipeops/pipeops-vm-agent/releases/latest/download/"
	newest    = latest + "version.txt"
	releases  = "/github.com/pipeops/pipeops-vm-agent/releases/download/"
	k3sAssets = "/github.com/k3s-io/k3s/releases/download/v1.36.4%2Bk3s1/"
	k3sSource = "/raw.githubusercontent.com/k3s-io/k3s/v1.36.4%2Bk3s1/"
)

// site stands in for all sites that install.sh downloads from, as a mirror does.
type site struct {
	*httptest.Server
	ca []byte

	mu     sync.Mutex
	files  map[string][]byte
	faults map[string]http.HandlerFunc // instead of a file
	asked  []string
}

func newSite(host string) (*site, error) {
	s := &site{files: map[string][]byte{}, faults: map[string]http.HandlerFunc{}}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	certificate, ca, err := certificateFor(net.ParseIP(host))
	if err != nil {
		return nil, err
	}
	s.ca = ca
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	return s, nil
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	s.mu.Lock()
	s.asked = append(s.asked, path)
	fault, content, found := s.faults[path], s.files[path], s.files[path] != nil
	s.mu.Unlock()
	switch {
	case fault != nil:
		fault(w, r)
	case found:
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
	default:
		http.NotFound(w, r)
	}
}

// put serves files of one folder, and its list of checksums.
func (s *site) put(folder, list string, files map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sums strings.Builder
	for name, content := range files {
		s.files[folder+name] = content
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	s.files[folder+list] = []byte(sums.String())
}

// publish serves one file.
func (s *site) publish(path, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = []byte(content)
}

// fault answers a path in another way, until heal.
func (s *site) fault(path string, handler http.HandlerFunc) (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[path] = handler
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.faults, path)
	}
}

// keep returns what takes away again all that is published from now on.
func (s *site) keep() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := maps.Clone(s.files)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.files = files
	}
}

// half sends half of a file and breaks off.
func (s *site) half(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		content := s.files[path]
		s.mu.Unlock()
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		panic(http.ErrAbortHandler)
	}
}

// other sends something else: a proxy's page.
func other(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("<html>Please log in</html>"))
}

// downloads are the paths that were asked for since the last call.
func (s *site) downloads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// certificateFor makes a CA and a server's certificate.
func certificateFor(ip net.IP) (certificate tls.Certificate, ca []byte, err error) {
	cert, key, err := selfsigned.PEM(ip.String(), "github.com")
	if err != nil {
		return certificate, nil, err
	}
	certificate, err = tls.X509KeyPair([]byte(cert), []byte(key))
	return certificate, []byte(cert), err
}

// file is what is served.
func (s *site) file(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[path]
}
