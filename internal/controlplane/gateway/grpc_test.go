package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// echoStream is a gRPC method with streams both ways.
var echoStream = grpc.StreamDesc{StreamName: "Echo", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
	for {
		text := &wrapperspb.StringValue{}
		err := s.RecvMsg(text)
		switch {
		case errors.Is(err, io.EOF):
			s.SetTrailer(metadata.Pairs("after", "all"))
			return status.Error(codes.ResourceExhausted, "enough")
		case err != nil:
			return err
		}
		if err := s.SendMsg(text); err != nil {
			return err
		}
	}
}}

// echoOnce is a gRPC method with one answer. It fails for an empty text.
var echoOnce = grpc.MethodDesc{MethodName: "Once", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	text := &wrapperspb.StringValue{}
	if err := decode(text); err != nil {
		return nil, err
	}
	of, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("before", strings.Join(of.Get("from"), ",")))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("after", "one", "after", "two", "data-bin", "\x00\xff"))
	if text.Value == "" {
		return nil, status.Error(codes.InvalidArgument, "no text: ä %")
	}
	return text, nil
}}

// events answers one request until the client goes away.
func events(ended chan<- error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: "Events", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		text := &wrapperspb.StringValue{}
		err := s.RecvMsg(text)
		if err == nil {
			err = s.SendMsg(text)
		}
		if err == nil {
			<-s.Context().Done()
			err = s.Context().Err()
		}
		ended <- err
		return err
	}}
}

// grpcWorld has a gRPC server behind the gateway, and a client of it.
func grpcWorld(t *testing.T, methods []grpc.MethodDesc, streams ...grpc.StreamDesc) *grpc.ClientConn {
	t.Helper()
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Methods: methods, Streams: streams}, nil)
	w := newWorld(t, nil)
	ln := listen(t)
	w.run(func(ctx context.Context) error {
		context.AfterFunc(ctx, srv.Stop)
		return srv.Serve(ln)
	})
	w.lead(ln.Addr().String())
	conn, err := grpc.NewClient("passthrough:///"+host,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.secure.String())
		}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestGRPC_Streams(t *testing.T) {
	conn := grpcWorld(t, nil, echoStream)
	stream, err := conn.NewStream(t.Context(), &echoStream, "/test.Echo/Echo")
	require.NoError(t, err)
	for _, text := range []string{"one", "two", strings.Repeat("x", 1<<20)} {
		require.NoError(t, stream.SendMsg(wrapperspb.String(text)))
		got := &wrapperspb.StringValue{}
		require.NoError(t, stream.RecvMsg(got), "an answer comes before the request has ended")
		assert.Equal(t, text, got.Value)
	}
	require.NoError(t, stream.CloseSend())
	err = stream.RecvMsg(&wrapperspb.StringValue{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	assert.Equal(t, []string{"all"}, stream.Trailer().Get("after"))
}

func TestGRPC_Calls(t *testing.T) {
	conn := grpcWorld(t, []grpc.MethodDesc{echoOnce})
	for text, code := range map[string]codes.Code{"text": codes.OK, "": codes.InvalidArgument} {
		var before, after metadata.MD
		got := &wrapperspb.StringValue{}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "from", "me", "from", "you")
		err := conn.Invoke(ctx, "/test.Echo/Once", wrapperspb.String(text), got, grpc.Header(&before), grpc.Trailer(&after))
		require.Equal(t, code, status.Code(err), err)
		assert.Equal(t, text, got.Value)
		assert.Equal(t, []string{"me,you"}, before.Get("before"))
		assert.Equal(t, []string{"one", "two"}, after.Get("after"))
		assert.Equal(t, []string{"\x00\xff"}, after.Get("data-bin"))
		if err != nil {
			assert.Equal(t, "no text: ä %", status.Convert(err).Message())
		}
	}
	err := conn.Invoke(t.Context(), "/test.Echo/Other", wrapperspb.String(""), &wrapperspb.StringValue{})
	assert.Equal(t, codes.Unimplemented, status.Code(err), err)
}

func TestGRPC_PropagatesCancel(t *testing.T) {
	ended := make(chan error, 1)
	desc := events(ended)
	conn := grpcWorld(t, nil, desc)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := conn.NewStream(ctx, &desc, "/test.Echo/Events")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(wrapperspb.String("text")))
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stream.RecvMsg(&wrapperspb.StringValue{}))
	cancel()
	require.ErrorIs(t, await.Receive(t, ended, "the App to hear of it"), context.Canceled)
}
