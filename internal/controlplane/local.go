package controlplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// localPrefix begins the names of callers at the socket. No operator with a certificate has such a
// name.
const localPrefix = "local/"

// localAPI is the operator API at the socket. Access to the data directory is its callers' right:
// they could change the database itself.
type localAPI struct {
	socket    net.Listener // nil if there is none
	operators http.Handler
	log       zerolog.Logger
}

// listenLocal listens for operators on this machine. A control plane works without it, for example
// on a volume that holds no sockets.
func listenLocal(ctx context.Context, data datadir.Data, operators http.Handler, log zerolog.Logger) localAPI {
	socket, err := data.ListenSocket(ctx)
	if err != nil {
		log.Warn().Err(err).Msg("commands on this machine need an operator's credentials: there is no socket in the data directory")
	}
	return localAPI{socket, operators, log}
}

// serve serves until the context ends.
func (l localAPI) serve(ctx context.Context) error {
	if l.socket == nil {
		return nil
	}
	server := &http.Server{
		Handler:           problem.WithRequestID(admitLocal(controlapi.LogRequests(l.log)(l.operators))),
		ConnContext:       withPeer,
		ReadHeaderTimeout: handshakeTimeout, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: httpserver.ErrorLog(l.log, ""),
	}
	return httpserver.Until(ctx, server, drainTimeout, func() error { return server.Serve(l.socket) })
}

// peer is the process at the other end of a connection, as the kernel knows it.
type peer struct {
	uid uint32
	err error
}

type peerKey struct{}

func withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(conn))
}

func peerOf(conn net.Conn) peer {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{err: errors.New("the connection is not a socket of this machine")}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return peer{err: err}
	}
	var from peer
	if err := raw.Control(func(fd uintptr) { from.uid, from.err = userOf(int(fd)) }); err != nil {
		return peer{err: err}
	}
	return from
}

// admitLocal refuses all users but root and that of the control plane. Others cannot reach the
// socket, unless its mode or that of the directory was changed.
func admitLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, ok := r.Context().Value(peerKey{}).(peer)
		if !ok || from.err != nil || from.uid != 0 && int(from.uid) != os.Geteuid() {
			problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.Forbidden,
				"become root or the user of the control plane, or use an operator's credentials", "this user may not call the control plane at its socket"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localCaller returns the caller of a request at the socket. Only admitLocal lets one through.
func localCaller(r *http.Request) (operatorapi.Caller, bool) {
	from, ok := r.Context().Value(peerKey{}).(peer)
	if !ok {
		return operatorapi.Caller{}, false
	}
	name := strconv.FormatUint(uint64(from.uid), 10)
	if known, err := user.LookupId(name); err == nil {
		name = known.Username
	}
	name = localPrefix + name
	return operatorapi.Caller{Operator: store.Operator{Name: name, Role: administration.RoleAdmin}, Proven: name}, true
}
