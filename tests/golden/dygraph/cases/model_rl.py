"""Policy gradient with a value head: losses of several steps summed before one backward."""

from dyg_common import *

L, P = layers, fluid.ParamAttr
Embedding, Linear = dg.Embedding, dg.Linear


def train(net, loss_of, opt, n=3):
    out = []
    for i in range(n):
        loss = loss_of(i)
        loss.backward()
        opt.minimize(loss)
        net.clear_gradients()
        out.append(float(np.asarray(loss.numpy()).reshape(-1)[0]))
    return out


def finals(net):
    return {k: [float(np.abs(p.numpy()).sum()), p.name] for k, p in net.state_dict().items()}


def scores():
    class Policy(dg.Layer):
        def __init__(s):
            super(Policy, s).__init__()
            s.a1 = Linear(4, 8)
            s.a2 = Linear(8, 2)
            s.dropout_ratio = 0.6
            s.v = Linear(8, 1)
            s.rewards = []

        def forward(s, x):
            x = L.reshape(x, shape=[1, 4])
            x = L.relu(s.a1(x))
            return L.softmax(s.a2(x)), s.v(x)

    net = init(Policy())
    opt = fluid.optimizer.AdamOptimizer(3e-2, parameter_list=net.parameters())
    out = []
    for ep in range(2):
        logs, vals, rw = [], [], []
        for t in range(4):
            st = to_variable(data("s%d%d" % (ep, t), 4))
            st.stop_gradient = True
            pr, v = net(st)
            a = int(np.argmax(pr.numpy()))
            m = to_variable(np.eye(2, dtype="float32")[a : a + 1])
            logs.append(L.log(L.reduce_sum(L.elementwise_mul(pr, m), dim=-1)))
            vals.append(v)
            rw.append(1.0 + t)
        R = 0
        ret = []
        for x in rw[::-1]:
            R = x + 0.9 * R
            ret.insert(0, R)
        ret = np.array(ret, "float32")
        ret = (ret - ret.mean()) / (ret.std() + 1e-6)
        ls = []
        for lp, v, rr in zip(logs, vals, ret):
            adv = rr - v.numpy()[0][0]
            ls.append(L.elementwise_mul(lp, L.fill_constant([1], "float32", -float(adv))))
            ls.append(L.smooth_l1(L.reshape(v, [1, 1]), to_variable(np.array([[rr]], "float32"))))
        ls = [L.reshape(x, [1]) for x in ls]
        loss = L.sum(ls)
        loss.backward()
        opt.minimize(loss)
        net.clear_gradients()
        out.append(float(loss.numpy()[0]))
    return out, finals(net)


def run():
    r = Rec()
    with dg.guard():
        r.put("scores", list(scores()))
    return r.out()


if __name__ == "__main__":
    main(run)
