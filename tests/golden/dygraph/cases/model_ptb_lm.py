"""An LSTM language model unrolled in Python, its state carried over steps, clipped by global norm."""

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
    class LSTM(dg.Layer):
        def __init__(s, h, n, layers):
            super(LSTM, s).__init__()
            s.h, s.n, s.k = h, n, layers
            s.w = []
            s.b = []
            for i in range(layers):
                s.w.append(
                    s.add_parameter(
                        "w_%d" % i,
                        s.create_parameter(
                            attr=P(initializer=fluid.initializer.UniformInitializer(-0.1, 0.1)),
                            shape=[2 * h, 4 * h],
                            dtype="float32",
                            default_initializer=fluid.initializer.UniformInitializer(-0.1, 0.1),
                        ),
                    )
                )
                s.b.append(
                    s.add_parameter(
                        "b_%d" % i,
                        s.create_parameter(
                            attr=P(initializer=fluid.initializer.UniformInitializer(-0.1, 0.1)),
                            shape=[4 * h],
                            dtype="float32",
                            default_initializer=fluid.initializer.Constant(0.0),
                        ),
                    )
                )

        def forward(s, x, ih, ic):
            cells, hs = [], []
            for i in range(s.k):
                h = L.slice(ih, axes=[0], starts=[i], ends=[i + 1])
                c = L.slice(ic, axes=[0], starts=[i], ends=[i + 1])
                hs.append(L.reshape(h, shape=[-1, s.h]))
                cells.append(L.reshape(c, shape=[-1, s.h]))
            res = []
            for t in range(s.n):
                inp = L.slice(x, axes=[1], starts=[t], ends=[t + 1])
                inp = L.reshape(inp, shape=[-1, s.h])
                for k in range(s.k):
                    g = L.concat([inp, hs[k]], 1)
                    g = L.matmul(x=g, y=s.w[k])
                    g = L.elementwise_add(g, s.b[k])
                    i, j, f, o = L.split(g, num_or_sections=4, dim=-1)
                    c = cells[k] * L.sigmoid(f) + L.sigmoid(i) * L.tanh(j)
                    m = L.tanh(c) * L.sigmoid(o)
                    hs[k], cells[k] = m, c
                    inp = m
                    inp = L.dropout(inp, dropout_prob=0.0, dropout_implementation="upscale_in_train")
                res.append(L.reshape(inp, shape=[1, -1, s.h]))
            rr = L.transpose(L.concat(res, 0), perm=[1, 0, 2])
            lh = L.transpose(L.reshape(L.concat(hs, 1), shape=[-1, s.k, s.h]), perm=[1, 0, 2])
            lc = L.transpose(L.reshape(L.concat(cells, 1), shape=[-1, s.k, s.h]), perm=[1, 0, 2])
            return rr, lh, lc

    class PTB(dg.Layer):
        def __init__(s, h=6, V=11, n=4, k=2):
            super(PTB, s).__init__()
            s.h, s.V, s.n, s.k = h, V, n, k
            s.rnn = LSTM(h, n, k)
            s.emb = Embedding(
                size=[V, h],
                dtype="float32",
                is_sparse=False,
                param_attr=P(
                    name="embedding_para", initializer=fluid.initializer.UniformInitializer(low=-0.1, high=0.1)
                ),
            )
            s.sw = s.create_parameter(attr=P(), shape=[h, V], dtype="float32")
            s.sb = s.create_parameter(
                attr=P(), shape=[V], dtype="float32", default_initializer=fluid.initializer.Constant(0.0)
            )

        def forward(s, x, y, h, c):
            h = L.reshape(h, shape=[s.k, -1, s.h])
            c = L.reshape(c, shape=[s.k, -1, s.h])
            e = L.reshape(s.emb(x), shape=[-1, s.n, s.h])
            o, lh, lc = s.rnn(e, h, c)
            o = L.reshape(o, shape=[-1, s.n, s.h])
            p = L.elementwise_add(L.matmul(o, s.sw), s.sb)
            p = L.reshape(p, shape=[-1, s.V])
            l = L.softmax_with_cross_entropy(logits=p, label=y, soft_label=False)
            l = L.reshape(l, shape=[-1, s.n])
            l = L.reduce_mean(l, dim=[0])
            l = L.reduce_sum(l)
            return l, lh, lc

    net = init(PTB())
    opt = fluid.optimizer.SGD(
        learning_rate=L.piecewise_decay([2], [1.0, 0.5]),
        parameter_list=net.parameters(),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5),
    )
    h = np.zeros((2, 3, 6), "float32")
    c = np.zeros((2, 3, 6), "float32")
    st = [h, c]
    out = []
    for i in range(3):
        l, lh, lc = net(
            to_variable(ints("x%d" % i, 11, 3, 4)),
            to_variable(ints("y%d" % i, 11, 12, 1)),
            to_variable(st[0]),
            to_variable(st[1]),
        )
        st = [lh.numpy(), lc.numpy()]
        l.backward()
        opt.minimize(l)
        net.clear_gradients()
        out.append(float(l.numpy()[0]))
    return out, finals(net), st[0].tolist()


def run():
    r = Rec()
    with dg.guard():
        r.put("scores", list(scores()))
    return r.out()


if __name__ == "__main__":
    main(run)
