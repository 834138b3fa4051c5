package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fatedier/frp/pkg/auth"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/msg"
	plugin "github.com/fatedier/frp/pkg/plugin/server"
	"github.com/fatedier/frp/pkg/proto/wire"
	frps "github.com/fatedier/frp/server"
	"github.com/fatedier/frp/server/controller"
	"github.com/fatedier/frp/server/proxy"
	"github.com/fatedier/frp/server/registry"
)

const (
	// heartbeatTimeout is how long an agent's FRP may be silent, which sends something every 30 s.
	// The guard sees to it: frps' own timeout is a goroutine each that looks once a second.
	heartbeatTimeout = 90 * time.Second
	// workConnTimeout is the wait for a work connection, in seconds.
	workConnTimeout = 10
)

var errReplaced = errors.New("a newer connection of the same replica took over")

// engine is frps without its service: the parts that speak FRP with a client and keep its
// proxies, but none that listen. frps' own service binds a port whether or not it is
// wanted, accepts from it, and allows every type of proxy.
type engine struct {
	cfg      *v1.ServerConfig
	controls *frps.ControlManager
	proxies  *proxy.Manager
	rc       *controller.ResourceController
	plugins  *plugin.Manager
}

func newEngine() (*engine, error) {
	off := false
	cfg := &v1.ServerConfig{UserConnTimeout: workConnTimeout}
	cfg.Transport.TCPMux = &off
	cfg.Transport.HeartbeatTimeout = -1 // none of its own
	if err := cfg.Complete(); err != nil {
		return nil, fmt.Errorf("tunnel server: frps' configuration: %w", err)
	}
	plugins := plugin.NewManager()
	return &engine{
		cfg:      cfg,
		controls: frps.NewControlManager(registry.NewClientRegistry()),
		proxies:  proxy.NewManager(),
		rc:       &controller.ResourceController{PluginManager: plugins},
		plugins:  plugins,
	}, nil
}

// login makes an FRP session of a login that was found to be the agent's own. An earlier
// session of the same replica must have been killed: this waits for its end.
func (e *engine) login(ctx context.Context, conn *msg.Conn, r replica, asked *msg.Login) (*frps.Control, error) {
	control, err := frps.NewControl(ctx, &frps.SessionContext{
		RC:            e.rc,
		PxyManager:    e.proxies,
		PluginManager: e.plugins,
		AuthVerifier:  auth.AlwaysPassVerifier, // the certificate has proven more
		EncryptionKey: []byte{},
		Conn:          conn,
		LoginMsg:      ownLogin(r, asked),
		ServerCfg:     e.cfg,
		WireProtocol:  wire.ProtocolV1,
	})
	if err != nil {
		return nil, err
	}
	if err := e.controls.Add(control); err != nil {
		return nil, errors.Join(err, control.Close())
	}
	control.WaitForHandoff()
	active, err := e.controls.Activate(control)
	if err == nil && !active {
		err = errReplaced
	}
	if err != nil {
		e.drop(control)
		return nil, err
	}
	return control, nil
}

func (e *engine) drop(control *frps.Control) {
	e.controls.Remove(control)
	_ = control.Close()
}

// ownLogin keeps nothing of a login that could matter beyond the log. The pool starts
// empty so that no work connection is asked for before the agent knows its proxy runs.
func ownLogin(r replica, asked *msg.Login) *msg.Login {
	return &msg.Login{
		Version: asked.Version, Hostname: asked.Hostname, Os: asked.Os, Arch: asked.Arch,
		User: r.agentID, RunID: r.runID(), Timestamp: asked.Timestamp,
	}
}
