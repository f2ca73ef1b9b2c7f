//! Channels between shards.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Backend, Closed, Mesh, ShardSpec, join_all, mesh, sleep, spawn, timeout, yield_now};

use crate::harness::{Dice, Env};

every!(messages_arrive_in_order, a_gone_shard_is_closed, a_shard_may_talk_to_itself);

on_real_ones!(
    no_wake_is_lost_between_two_sleeping_shards,
    no_wake_is_lost_between_more_shards_than_cores,
    no_wake_is_lost_between_spinning_shards,
    no_wake_is_lost_in_a_ping_pong,
);

/// Every shard sends `count` numbered messages to every shard and checks what it gets.
async fn exchange(handle: Mesh<u64>, count: u64, seed: u64) {
    let handle = Rc::new(handle);
    let sending = Rc::clone(&handle);
    let sender = spawn(async move {
        let mut dice = Dice::new(seed);
        for i in 0..count {
            for to in 0..sending.shards() {
                sending.send(to, i).await.unwrap();
            }
            // Lets the others fall asleep now and then, and runs timers beside it.
            match dice.below(200) {
                0 => sleep(Duration::from_micros(dice.below(300) as u64)).await,
                1..20 => yield_now().await,
                _ => {}
            }
        }
    });
    let mut next = vec![0; handle.shards()];
    while next.iter().any(|&n| n < count) {
        let received = timeout(Duration::from_secs(60), handle.recv()).await;
        let Some((from, i)) = received.expect("a wake was lost") else {
            // All peers are done and gone; what is still to come is from ourselves.
            next.iter().enumerate().for_each(|(i, &n)| assert!(n == count || i == handle.me()));
            yield_now().await;
            continue;
        };
        assert_eq!(next[from], i, "order from shard {from}");
        next[from] += 1;
    }
    sender.await;
    assert_eq!(next, vec![count; handle.shards()]);
}

async fn messages_arrive_in_order(env: Env) {
    let count = env.rounds(2_000, 200) as u64;
    let seed = env.seed;
    let shards = mesh(4, 3).into_iter().map(|handle| spawn(exchange(handle, count, seed)));
    join_all(shards).await;
}

async fn a_gone_shard_is_closed(_: Env) {
    let mut handles = mesh::<u8>(2, 1).into_iter();
    let (a, b) = (handles.next().unwrap(), Rc::new(handles.next().unwrap()));
    a.send(1, 1).await.unwrap();
    b.send(0, 2).await.unwrap();
    let blocked = spawn({
        let b = Rc::clone(&b);
        async move { b.send(0, 3).await }
    });
    sleep(Duration::from_millis(1)).await;
    drop(a);
    assert_eq!(blocked.await, Err(Closed));
    assert_eq!(b.recv().await, Some((0, 1)), "what was sent before is still there");
    assert_eq!(b.recv().await, None);
}

async fn a_shard_may_talk_to_itself(_: Env) {
    let alone = Rc::new(mesh::<u8>(1, 2).remove(0));
    let receiver = spawn({
        let alone = Rc::clone(&alone);
        async move { alone.recv().await }
    });
    sleep(Duration::from_millis(1)).await;
    alone.send(0, 9).await.unwrap();
    assert_eq!(receiver.await, Some((0, 9)));
}

fn stress(backend: Backend, shards: usize, count: u64, spin: Duration) {
    let threads: Vec<_> = mesh::<u64>(shards, 8)
        .into_iter()
        .enumerate()
        .map(|(i, handle)| {
            let spec = ShardSpec { name: format!("s{i}"), spin, ..ShardSpec::default() };
            backend.spawn_shard(spec, move || exchange(handle, count, i as u64 + 1)).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

fn no_wake_is_lost_between_two_sleeping_shards(backend: Backend) {
    stress(backend, 2, 30_000, Duration::ZERO);
}

fn no_wake_is_lost_between_more_shards_than_cores(backend: Backend) {
    stress(backend, 5, 4_000, Duration::ZERO);
}

fn no_wake_is_lost_between_spinning_shards(backend: Backend) {
    stress(backend, 2, 30_000, Duration::from_micros(20));
}

/// One message at a time, so that both shards sleep between any two.
fn no_wake_is_lost_in_a_ping_pong(backend: Backend) {
    let mut handles = mesh::<u32>(2, 1).into_iter();
    let (a, b) = (handles.next().unwrap(), handles.next().unwrap());
    let echo = backend
        .spawn_shard(ShardSpec::default(), move || async move {
            while let Some((from, i)) = b.recv().await {
                if b.send(from, i).await.is_err() {
                    break;
                }
            }
        })
        .unwrap();
    let ping = backend
        .spawn_shard(ShardSpec::default(), move || async move {
            for i in 0..20_000 {
                a.send(1, i).await.unwrap();
                let back =
                    timeout(Duration::from_secs(60), a.recv()).await.expect("a wake was lost");
                assert_eq!(back, Some((1, i)));
            }
        })
        .unwrap();
    ping.join().unwrap().unwrap();
    echo.join().unwrap().unwrap();
}
