//! Connections: whole sends, ends, resets, slow readers, cancelled reads.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::{TcpListener, TcpStream, join_all, sleep, spawn, timeout};

use crate::harness::{Dice, Env};

every!(
    an_echo_of_big_vectors,
    half_a_frame_then_the_end,
    a_half_closed_stream_still_reads,
    a_peer_that_resets,
    a_slow_reader_stops_its_writer,
    a_port_in_use_is_an_error,
    nobody_listens,
    a_cancelled_read_frees_the_stream,
    a_cancelled_write_frees_the_stream,
    a_cancelled_accept_frees_the_port,
    shutdown_ends_a_waiting_read,
    many_idle_connections,
    readable_waits_for_bytes
);

const MS: Duration = Duration::from_millis(1);

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0".parse().unwrap(), 1024).unwrap()
}

/// Two ends of one connection: who connected, who accepted.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = listen();
    let addr = listener.local_addr();
    let accepting = spawn(async move { listener.accept().await.unwrap() });
    let client = TcpStream::connect(addr).await.unwrap();
    let (server, peer) = accepting.await;
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!((client.peer_addr(), server.peer_addr()), (addr, peer));
    (client, server)
}

async fn read_to_end(stream: &TcpStream) -> (Vec<u8>, std::io::Result<()>) {
    let mut all = Vec::new();
    loop {
        let (n, buf) = stream.read(BytesMut::with_capacity(10_000)).await;
        all.extend_from_slice(&buf);
        match n {
            Ok(0) => return (all, Ok(())),
            Ok(n) => assert_eq!(n, buf.len()),
            Err(e) => return (all, Err(e)),
        }
    }
}

async fn an_echo_of_big_vectors(env: Env) {
    let (client, server) = pair().await;
    let echo = spawn(async move {
        loop {
            let (n, buf) = server.read(BytesMut::with_capacity(70_000)).await;
            if n.unwrap() == 0 {
                server.finish_writes();
                return;
            }
            server.write_all(vec![buf.freeze()]).await.unwrap();
        }
    });
    let mut dice = Dice::new(env.seed);
    // More parts than one call may carry, empty ones among them.
    let parts: Vec<Bytes> = (0..env.rounds(5_000, 2_500))
        .map(|_| {
            let n = dice.below(900);
            Bytes::from(dice.bytes(n))
        })
        .collect();
    let expected = parts.concat();
    let writer = client.clone();
    let writing = spawn(async move {
        writer.write_all(parts).await.unwrap();
        writer.write_all(Vec::new()).await.unwrap();
        writer.finish_writes();
    });
    let (echoed, end) = read_to_end(&client).await;
    end.unwrap();
    assert!(echoed == expected, "{} bytes of {}", echoed.len(), expected.len());
    writing.await;
    echo.await;
}

async fn half_a_frame_then_the_end(_: Env) {
    let (client, server) = pair().await;
    client.write_all(vec![Bytes::from_static(b"\0\0\0\x10half")]).await.unwrap();
    drop(client);
    let (got, end) = read_to_end(&server).await;
    assert_eq!(got, b"\0\0\0\x10half");
    end.unwrap();
}

async fn a_half_closed_stream_still_reads(_: Env) {
    let (client, server) = pair().await;
    client.write_all(vec![Bytes::from_static(b"request")]).await.unwrap();
    client.finish_writes();
    let (got, end) = read_to_end(&server).await;
    assert_eq!(got, b"request");
    end.unwrap();
    server.write_all(vec![Bytes::from_static(b"reply")]).await.unwrap();
    drop(server);
    let (got, end) = read_to_end(&client).await;
    assert_eq!(got, b"reply");
    end.unwrap();
    let error = client.write_all(vec![Bytes::from_static(b"more")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

async fn a_peer_that_resets(_: Env) {
    let (client, server) = pair().await;
    // Closing with unread bytes is a reset.
    client.write_all(vec![Bytes::from(vec![1; 1000])]).await.unwrap();
    sleep(5 * MS).await;
    drop(server);
    let (_, end) = read_to_end(&client).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let error = client.write_all(vec![Bytes::from_static(b"more")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
}

async fn a_slow_reader_stops_its_writer(env: Env) {
    let (client, server) = pair().await;
    let total = env.rounds(32 << 20, 2 << 20);
    let writing = spawn(async move {
        client.write_all(vec![Bytes::from(vec![7; total])]).await.unwrap();
    });
    sleep(20 * MS).await;
    assert!(!writing.is_finished(), "nobody read, yet everything was sent");
    let (got, end) = read_to_end(&server).await;
    end.unwrap();
    assert_eq!(got.len(), total);
    assert!(got.iter().all(|&b| b == 7));
    writing.await;
}

async fn a_port_in_use_is_an_error(_: Env) {
    let first = listen();
    let error = TcpListener::bind(first.local_addr(), 1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let addr = first.local_addr();
    drop(first);
    sleep(MS).await;
    TcpListener::bind(addr, 1).unwrap();
}

async fn nobody_listens(_: Env) {
    let listener = listen();
    let addr = listener.local_addr();
    drop(listener);
    sleep(MS).await;
    let error = TcpStream::connect(addr).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// The peer sees the end only if the descriptor was really closed.
async fn a_cancelled_read_frees_the_stream(_: Env) {
    let (client, server) = pair().await;
    let reading = spawn(async move { server.read(BytesMut::with_capacity(100)).await.0 });
    sleep(MS).await;
    drop(reading);
    let (got, end) = timeout(Duration::from_secs(10), read_to_end(&client)).await.unwrap();
    end.unwrap();
    assert!(got.is_empty());
}

async fn a_cancelled_write_frees_the_stream(_: Env) {
    let (client, server) = pair().await;
    let total = 64 << 20;
    let writing = spawn(async move {
        client.write_all(vec![Bytes::from(vec![7; total])]).await.unwrap();
    });
    sleep(5 * MS).await;
    drop(writing);
    let (got, _) = timeout(Duration::from_secs(20), read_to_end(&server)).await.unwrap();
    assert!(got.len() < total, "the write was not cancelled");
}

async fn a_cancelled_accept_frees_the_port(_: Env) {
    let listener = listen();
    let addr = listener.local_addr();
    let accepting = spawn(async move {
        let _ = listener.accept().await;
    });
    sleep(MS).await;
    drop(accepting);
    sleep(5 * MS).await;
    TcpListener::bind(addr, 1).unwrap();
}

async fn shutdown_ends_a_waiting_read(_: Env) {
    let (client, server) = pair().await;
    let reader = server.clone();
    let reading = spawn(async move { read_to_end(&reader).await });
    sleep(MS).await;
    server.shutdown();
    let (got, end) = timeout(Duration::from_secs(10), reading).await.unwrap();
    assert!(got.is_empty() && end.is_ok());
    let (got, end) = timeout(Duration::from_secs(10), read_to_end(&client)).await.unwrap();
    assert!(got.is_empty() && end.is_ok());
}

async fn many_idle_connections(env: Env) {
    let count = env.rounds(2_000, 100);
    let listener = listen();
    let addr = listener.local_addr();
    let serving = spawn(async move {
        let mut readers = Vec::new();
        for _ in 0..count {
            let (stream, _) = listener.accept().await.unwrap();
            readers.push(spawn(async move {
                let (got, end) = read_to_end(&stream).await;
                end.unwrap();
                got.len()
            }));
        }
        join_each(readers).await
    });
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(TcpStream::connect(addr).await.unwrap());
    }
    for (i, client) in clients.iter().enumerate().rev() {
        client.write_all(vec![Bytes::from(vec![1; i % 7])]).await.unwrap();
    }
    drop(clients);
    let total: usize = serving.await.into_iter().sum();
    assert_eq!(total, (0..count).map(|i| i % 7).sum());
}

async fn join_each<T: 'static>(tasks: Vec<reactor::Task<T>>) -> Vec<T> {
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await);
    }
    outputs
}

async fn readable_waits_for_bytes(_: Env) {
    let (client, server) = pair().await;
    assert!(timeout(5 * MS, server.readable()).await.is_err());
    client.write_all(vec![Bytes::from_static(b"x")]).await.unwrap();
    timeout(Duration::from_secs(10), server.readable()).await.unwrap().unwrap();
    let (n, _) = server.read(BytesMut::with_capacity(10)).await;
    assert_eq!(n.unwrap(), 1);
    drop(client);
    timeout(Duration::from_secs(10), server.readable()).await.unwrap().unwrap();
    // All of these waits leave no task behind.
    join_all((0..10).map(|_| server.readable())).await;
}
