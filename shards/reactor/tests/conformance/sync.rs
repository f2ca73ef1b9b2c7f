//! Notify, oneshot, channel, semaphore.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use reactor::sync::{Notify, Semaphore, TrySendError, channel, oneshot};
use reactor::{Closed, TimedOut, join_all, sleep, spawn, timeout, yield_now};

use crate::harness::Env;

every!(
    a_change_before_the_await_is_seen,
    a_oneshot_delivers_or_closes,
    a_full_channel_makes_its_senders_wait,
    a_closed_channel_says_so,
    a_semaphore_is_fair_and_counts
);

const MS: Duration = Duration::from_millis(1);

async fn a_change_before_the_await_is_seen(_: Env) {
    let changed = Notify::new();
    let listener = changed.notified();
    changed.notify_all();
    timeout(MS, listener).await.unwrap();
    let late = changed.notified();
    assert_eq!(timeout(MS, late).await, Err(TimedOut), "a change before is no change after");
    // Listeners that are dropped while they wait leave nothing behind.
    for _ in 0..100 {
        let _ = timeout(Duration::ZERO, changed.notified()).await;
    }
    let waiting: Vec<_> = (0..10).map(|_| spawn(changed.notified())).collect();
    sleep(MS).await;
    changed.notify_all();
    join_all(waiting).await;
}

async fn a_oneshot_delivers_or_closes(_: Env) {
    let (sender, receiver) = oneshot();
    let task = spawn(receiver);
    yield_now().await;
    sender.send(5).unwrap();
    assert_eq!(task.await, Ok(5));
    let (sender, receiver) = oneshot::<u8>();
    let task = spawn(receiver);
    yield_now().await;
    drop(sender);
    assert_eq!(task.await, Err(Closed));
    let (sender, receiver) = oneshot();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send("back"), Err("back"));
}

async fn a_full_channel_makes_its_senders_wait(_: Env) {
    let (sender, mut receiver) = channel(4);
    let senders: Vec<_> = (0..8u64)
        .map(|who| {
            let sender = sender.clone();
            spawn(async move {
                for i in 0..100 {
                    sender.send((who, i)).await.unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; 8];
    while let Some((who, i)) = receiver.recv().await {
        assert!(receiver.len() <= 4, "more than the bound is queued");
        assert_eq!(next[who as usize], i, "order of one sender");
        next[who as usize] += 1;
    }
    assert_eq!(next, [100; 8]);
    join_all(senders).await;
}

async fn a_closed_channel_says_so(_: Env) {
    let (sender, receiver) = channel(1);
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    let blocked = spawn({
        let sender = sender.clone();
        async move { sender.send(3).await }
    });
    sleep(MS).await;
    drop(receiver);
    assert_eq!(blocked.await, Err(Closed));
    assert_eq!(sender.try_send(4), Err(TrySendError::Closed(4)));
}

async fn a_semaphore_is_fair_and_counts(_: Env) {
    let budget = Semaphore::new(10);
    let all = budget.acquire(10).await;
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut tasks = Vec::new();
    for (who, amount) in [(0, 8), (1, 3), (2, 8), (3, 100)] {
        let (budget, order) = (budget.clone(), Rc::clone(&order));
        tasks.push(spawn(async move {
            let permit = budget.acquire(amount).await;
            order.borrow_mut().push(who);
            assert_eq!(permit.amount(), amount.min(10));
            sleep(MS).await;
        }));
        // They queue in this order on every schedule.
        sleep(MS).await;
    }
    assert!(budget.try_acquire(1).is_none());
    // One that gives up while it waits must not hold up those behind it.
    assert_eq!(timeout(MS, budget.acquire(10)).await.err(), Some(TimedOut));
    drop(all);
    join_all(tasks).await;
    assert_eq!(*order.borrow(), [0, 1, 2, 3]);
    assert_eq!(budget.available(), 10);
    let mut permit = budget.acquire(6).await;
    permit.shrink_to(2);
    permit.merge(budget.acquire(3).await);
    assert_eq!((permit.amount(), budget.available()), (5, 5));
    budget.set_capacity(3);
    assert_eq!(budget.available(), 0);
    drop(permit);
    assert_eq!(budget.available(), 3);
}
