package way

import (
	"context"
	"time"

	chclient "github.com/jpillora/chisel/client"
	chserver "github.com/jpillora/chisel/server"
	"golang.org/x/sync/errgroup"
)

const chiselAuth = "bench:bench"

func chiselRelay(ctx context.Context, at Place) error {
	srv, err := chserver.NewServer(&chserver.Config{Auth: chiselAuth, Reverse: true, KeepAlive: 25 * time.Second})
	if err != nil {
		return err
	}
	host, port := split(at.Tunnel)
	if err := srv.StartContext(ctx, host, port); err != nil {
		return err
	}
	return srv.Wait()
}

func chiselAgent(ctx context.Context, at Place) error {
	c, err := chclient.NewClient(&chclient.Config{
		Server: "http://" + at.Via, Auth: chiselAuth, KeepAlive: 25 * time.Second, MaxRetryCount: -1,
		Remotes: []string{"R:" + at.Public + ":" + at.Local},
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	if err := c.Start(ctx); err != nil {
		return err
	}
	group.Go(c.Wait)
	return group.Wait()
}
