package server

import (
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// shared refuses calls beyond a Runner's share ahead of everything that costs something, including
// the audit log: such calls were neither carried out nor examined.
func (s *server) shared(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := s.calls.Enter(request.Caller(r.Context()).Runner)
		if !ok {
			kubernetes.WriteError(w, r, s.log, request.Busy("too many of this Runner's calls are in progress"))
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}
