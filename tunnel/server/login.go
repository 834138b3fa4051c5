package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	netpkg "github.com/fatedier/frp/pkg/util/net"
	"github.com/fatedier/frp/pkg/util/version"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// answerTimeout bounds the answer to a login.
const answerTimeout = 5 * time.Second

// login makes this the agent's session, or sends the agent the reason for a refusal.
func (s *session) login(ctx context.Context, stream *link.Stream, m *msg.Login) error {
	if s.loggedIn.Swap(true) {
		return fmt.Errorf("%w: a second login", errForeign)
	}
	r := replica{s.agentID, m.ClientID}
	if err := admitLogin(r, m); err != nil {
		reason := "the certificate is another agent's"
		if !link.ValidInstance(r.instance) {
			reason = "a replica cannot have that name; use letters, digits, dots, dashes and underscores"
		}
		s.refuse(stream, link.Refusal(reason, true))
		return err
	}
	s.replica = r
	if within, busy := s.server.busy(); busy {
		s.refuse(stream, link.Later(errBusy.Error(), within))
		s.kill(errBusy)
		return errBusy
	}
	if err := s.authorize(ctx, stream, m); err != nil {
		s.kill(err)
		return err
	}
	leave, err := s.server.agents.takeOver(s)
	if errors.Is(err, errCrowded) {
		s.refuse(stream, link.Refusal(err.Error(), false))
		s.kill(err)
	}
	if err != nil {
		return err
	}
	defer leave()
	return s.start(ctx, stream, m)
}

// start begins the FRP session.
func (s *session) start(ctx context.Context, stream *link.Stream, m *msg.Login) error {
	rw, err := netpkg.NewCryptoReadWriter(stream, []byte{})
	if err != nil {
		return err
	}
	conn := msg.NewConn(stream, &guard{
		ReadWriter: msg.NewV1ReadWriter(rw), replica: s.replica, onUp: s.reachable, onEnd: s.kill,
		onAsk: func() { s.asked.Add(1) },
	})
	control, err := s.server.engine.login(ctx, conn, s.replica, m)
	if err != nil {
		s.kill(err)
		return err
	}
	s.mu.Lock()
	s.control = control
	s.mu.Unlock()
	answer := &msg.LoginResp{Version: version.Full(), RunID: control.RunID()}
	if err := sendAnswer(stream, answer); err != nil || !control.Start() {
		s.server.engine.drop(control)
		s.kill(errors.Join(err, errReplaced))
		return nil
	}
	s.server.counts.logins.Add(1)
	return nil
}

// authorize asks whether the agent may come in. The session is on the agent's list by
// now, so that a revocation after the question finds it there.
func (s *session) authorize(ctx context.Context, stream *link.Stream, m *msg.Login) error {
	ctx, cancel := context.WithTimeout(ctx, s.server.cfg.Limits.HandshakeTimeout)
	defer cancel()
	err := s.server.cfg.Authorize(ctx, s.agentID)
	if err == nil {
		err = s.server.cfg.Admit(ctx, s.agentID, s.loginOf(m))
	}
	var refusal *RefusalError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		s.refuse(stream, link.Refusal(refusal.Reason, true))
	case errors.Is(err, ErrRevoked):
		s.refuse(stream, link.Refusal(err.Error(), true))
	default:
		s.log.Warn().Err(err).Msg("failed to check whether the agent may connect")
		s.refuse(stream, link.Refusal("the control plane cannot check the agent at present", false))
	}
	return err
}

// loginOf returns what a login states about the replica. It leaves out anything but plain words.
func (s *session) loginOf(m *msg.Login) Login {
	l := Login{Instance: s.replica.instance, Address: s.raw.RemoteAddr().String()}
	if host, _, err := net.SplitHostPort(l.Address); err == nil {
		l.Address = host
	}
	if uid := m.Metas[link.MetaCluster]; link.ValidInstance(uid) {
		l.Cluster = uid
	}
	return l
}

// refuse sends the agent a refusal and waits until the agent has hung up.
func (s *session) refuse(stream *link.Stream, text string) {
	s.server.counts.refused.Add(1)
	if sendAnswer(stream, &msg.LoginResp{Version: version.Full(), Error: text}) != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = stream.Read(make([]byte, 1))
}

func sendAnswer(stream *link.Stream, m msg.Message) error {
	_ = stream.SetWriteDeadline(time.Now().Add(answerTimeout))
	defer func() { _ = stream.SetWriteDeadline(time.Time{}) }()
	return msg.WriteMsg(stream, m)
}
