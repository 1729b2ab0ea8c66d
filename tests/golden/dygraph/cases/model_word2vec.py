"""Skip-gram with sparse tables under Adagrad, SGD and lazy Adam."""

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
    class SG(dg.Layer):
        def __init__(s):
            super(SG, s).__init__("sg")
            s.e = Embedding(
                size=[12, 4],
                dtype="float32",
                param_attr=P(name="embedding_para", initializer=fluid.initializer.UniformInitializer(-0.1, 0.1)),
                is_sparse=True,
            )
            s.o = Embedding([12, 4], param_attr=P(name="o"), is_sparse=True)

        def forward(s, c, t, l):
            a, b = s.e(c), s.o(t)
            w = L.elementwise_mul(a, b)
            w = L.reduce_sum(w, dim=-1)
            p = L.sigmoid(w)
            ls = L.sigmoid_cross_entropy_with_logits(w, l)
            return p, L.reduce_mean(ls)

    net = init(SG())
    opt = fluid.optimizer.Adagrad(0.1, parameter_list=net.parameters())
    o2 = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    o3 = fluid.optimizer.Adam(0.1, parameter_list=net.parameters(), lazy_mode=True)
    f = lambda i: net(
        to_variable(ints("c", 12, 5)), to_variable(ints("t", 12, 5)), to_variable(ints("l", 2, 5, dtype="float32"))
    )[1]
    return train(net, f, opt), train(net, f, o2), train(net, f, o3), finals(net)


def run():
    r = Rec()
    with dg.guard():
        r.put("scores", list(scores()))
    return r.out()


if __name__ == "__main__":
    main(run)
