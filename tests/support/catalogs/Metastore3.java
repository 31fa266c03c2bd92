import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/**
 * Hive Metastore 3 with the tables of its locks. DataNucleus makes all others, but only Hive's own
 * scripts make these, and no jar has the scripts.
 */
public class Metastore3 {
    public static void main(String[] words) throws Throwable {
        TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
        HiveMetaStore.main(words);
    }
}
