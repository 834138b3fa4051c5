package server

import (
	"reflect"

	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/server/proxy"
)

// quietProxy is frps' stcp proxy without a listener for visitors. There are none: connections are
// made through the proxy object. So there is not even a connection for them, and neither the
// goroutine nor the queue that wait behind it for each agent.
type quietProxy struct{ *proxy.BaseProxy }

// Run implements proxy.Proxy.
func (quietProxy) Run() (remoteAddr string, err error) { return "", nil }

// init replaces the stcp proxies of this process by quiet ones: frps keeps its kinds of proxies in
// a map without a lock, so they are set before anything can run.
func init() {
	proxy.RegisterProxyFactory(reflect.TypeFor[*v1.STCPProxyConfig](), func(base *proxy.BaseProxy) proxy.Proxy { return quietProxy{base} })
}
