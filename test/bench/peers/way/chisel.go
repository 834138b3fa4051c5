package way

import (
	"context"
	"time"

	chclient "github.com/jpillora/chisel/client"
	chserver "github.com/jpillora/chisel/server"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const chiselAuth = "bench:bench"

func chiselRelay(ctx context.Context, at Place) {
	srv := run.Must(chserver.NewServer(&chserver.Config{Auth: chiselAuth, Reverse: true, KeepAlive: 25 * time.Second}))
	host, port := split(at.Tunnel)
	run.Check(srv.StartContext(ctx, host, port))
	run.Check(srv.Wait())
}

func chiselAgent(ctx context.Context, at Place) {
	c := run.Must(chclient.NewClient(&chclient.Config{
		Server: "http://" + at.Via, Auth: chiselAuth, KeepAlive: 25 * time.Second, MaxRetryCount: -1,
		Remotes: []string{"R:" + at.Public + ":" + at.Local},
	}))
	run.Check(c.Start(ctx))
	together(c.Wait, func() error { return serveAt(ctx, at.Local, at.Dir) })
}
