from .train import Trainer

if __name__ == "__main__":
    Trainer().fit()
