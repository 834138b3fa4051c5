// Command dex serves dex, an OpenID provider, for tests. It has one client and one person, and
// keeps everything in memory. Upstream's own command needs cgo, for SQLite.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
)

func main() {
	listen := flag.String("listen", "", "listen address, host:port")
	issuer := flag.String("issuer", "", "URL of the issuer")
	cert := flag.String("cert", "", "PEM file with the certificate")
	key := flag.String("key", "", "PEM file with the certificate's key")
	client := flag.String("client", "", "ID of the client")
	secret := flag.String("secret-file", "", "file with the secret of the client")
	redirect := flag.String("redirect", "", "URL to which the client has browsers sent")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	text, err := os.ReadFile(*secret)
	if err == nil {
		err = serve(ctx, *listen, *issuer, *cert, *key, storage.Client{
			ID: *client, Secret: string(text), Name: "console", RedirectURIs: []string{*redirect},
		})
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, listen, issuer, cert, key string, client storage.Client) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	kept := storage.WithStaticClients(memory.New(logger), []storage.Client{client})
	// The person is upstream's: kilgore@kilgore.trout of the group authors.
	kept = storage.WithStaticConnectors(kept, []storage.Connector{{ID: "mock", Type: "mockCallback", Name: "mock"}})
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: kept, SkipApprovalScreen: true, Logger: logger, Web: server.WebConfig{WebFS: web.FS()},
		AllowedGrantTypes: []string{"authorization_code"}, IDTokensValidFor: time.Hour,
	})
	if err != nil {
		return err
	}
	s := &http.Server{Addr: listen, Handler: dex, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = s.Close()
	}()
	if err := s.ListenAndServeTLS(cert, key); err != http.ErrServerClosed {
		return err
	}
	return nil
}
