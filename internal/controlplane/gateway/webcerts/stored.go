package webcerts

import "sync"

// stored remembers hosts whose certificate is in the database. Certificates are renewed in place,
// so that one which was there stays.
type stored struct {
	mu    sync.Mutex
	hosts map[string]bool
}

func (s *stored) is(host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[host]
}

func (s *stored) add(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil || len(s.hosts) >= capacity {
		s.hosts = map[string]bool{}
	}
	s.hosts[host] = true
}
